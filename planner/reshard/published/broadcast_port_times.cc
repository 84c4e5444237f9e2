#include "planner/reshard/published/broadcast_port_times.h"

#include "common/base/check.h"

#include <limits>
#include <map>

namespace crossmesh {
namespace {

std::vector<HostRank> HostsOf(std::span<const KindSender> senders) {
  std::vector<HostRank> hosts;
  for (const KindSender& sender : senders) hosts.push_back(sender.host);
  return hosts;
}

}  // namespace

template <typename Visit>
void BroadcastPortTimes::ForEachChainPort(int64_t kind, Visit visit) {
  const std::vector<HostRank>& chain = kinds_[kind].chain;
  for (size_t i = 0; i < chain.size(); ++i) {
    visit(in_[chain[i]]);
    if (i + 1 < chain.size()) visit(out_[chain[i]]);
  }
}

BroadcastPortTimes::BroadcastPortTimes(std::span<const BroadcastKind> kinds,
                                       const HostNetwork& network)
    : kinds_(kinds),
      rate_(network.fastest_nic.out.begin(), network.fastest_nic.out.end()),
      shares_of_(kinds.size()),
      out_(network.hosts.size()),
      in_(network.hosts.size()) {
  AddShares();
  CountAll();
}

// All senders of all kinds, and the senders of the kinds that come first.
void BroadcastPortTimes::AddShares() {
  std::map<std::vector<HostRank>, int32_t> numbers;
  std::vector<HostRank> all;
  for (const BroadcastKind& kind : kinds_) {
    std::vector<HostRank> hosts = HostsOf(kind.senders);
    all.insert(all.end(), hosts.begin(), hosts.end());
    // One place is kept for the set of all senders, added below.
    if (numbers.size() + 1 < kSharesMax) numbers.try_emplace(std::move(hosts), 0);
  }
  std::ranges::sort(all);
  all.erase(std::ranges::unique(all).begin(), all.end());
  numbers.try_emplace(std::move(all), 0);
  for (const auto& [hosts, number] : numbers) {
    Share& share = shares_.emplace_back(Share{.hosts = hosts});
    for (const HostRank host : hosts) share.rate += rate_[host];
  }
  for (size_t k = 0; k < kinds_.size(); ++k) {
    const std::vector<HostRank> hosts = HostsOf(kinds_[k].senders);
    for (size_t s = 0; s < shares_.size(); ++s) {
      if (!std::ranges::includes(shares_[s].hosts, hosts)) continue;
      shares_of_[k].push_back(static_cast<int32_t>(s));
    }
  }
}

void BroadcastPortTimes::CountAll() {
  for (size_t k = 0; k < kinds_.size(); ++k) {
    const auto members = static_cast<double>(kinds_[k].members.size());
    left_.push_back(static_cast<int64_t>(kinds_[k].members.size()));
    double& work = work_.emplace_back(std::numeric_limits<double>::infinity());
    for (const KindSender& sender : kinds_[k].senders) {
      // The least of all senders, so that the bound holds whichever of them sends.
      work = std::min(work, sender.seconds * rate_[sender.host]);
    }
    for (const int32_t share : shares_of_[k]) shares_[share].work_left += members * work;
    const double seconds = members * kinds_[k].seconds();
    ForEachChainPort(static_cast<int64_t>(k), [&](Port& port) { port.left += seconds; });
  }
}

double BroadcastPortTimes::ChainFree(int64_t kind) const {
  const std::vector<HostRank>& chain = kinds_[kind].chain;
  double free = in_[chain.back()].free;
  for (size_t i = 0; i + 1 < chain.size(); ++i) {
    free = std::max({free, in_[chain[i]].free, out_[chain[i]].free});
  }
  return free;
}

double BroadcastPortTimes::Urgency(int64_t kind) const {
  double seconds = 0;
  for (const HostRank host : kinds_[kind].chain) {
    seconds = std::max({seconds, in_[host].left, out_[host].left});
  }
  for (const int32_t share : shares_of_[kind]) {
    seconds = std::max(seconds, shares_[share].work_left / shares_[share].rate);
  }
  return seconds;
}

void BroadcastPortTimes::Place(int64_t kind, const KindSender& sender) {
  CHECK(left_[kind] > 0);
  placed_.push_back({kind, undo_.size()});
  --left_[kind];
  const double start = std::max(ChainFree(kind), SenderFree(sender.host));
  const double end = start + sender.seconds;
  // Taken off as it was counted: as from the fastest sender.
  const double least = kinds_[kind].seconds();
  ForEachChainPort(kind, [&](Port& port) {
    Set(port.free, end);
    Set(port.left, port.left - least);
  });
  Set(out_[sender.host].free, end);
  for (const int32_t share : shares_of_[kind]) {
    Set(shares_[share].work_left, shares_[share].work_left - work_[kind]);
  }
}

void BroadcastPortTimes::TakeBack() {
  const Placed last = placed_.back();
  placed_.pop_back();
  ++left_[last.kind];
  for (; undo_.size() > last.undo; undo_.pop_back()) *undo_.back().first = undo_.back().second;
}

double BroadcastPortTimes::LowerBound(double floor_seconds) const {
  double bound = 0;
  for (const Port& port : in_) bound = std::max(bound, port.UsedUntil(floor_seconds));
  for (const Port& port : out_) bound = std::max(bound, port.UsedUntil(floor_seconds));
  for (const Share& share : shares_) bound = std::max(bound, EndOf(share, floor_seconds));
  return bound;
}

// Hosts that are used for other things beyond the end take no part: leaving them out brings the end
// of the others nearer, so that more may have to be left out.
double BroadcastPortTimes::EndOf(const Share& share, double floor) const {
  if (share.work_left <= 0) return 0;
  double end = std::numeric_limits<double>::infinity();
  while (true) {
    double work = share.work_left, rate = 0;
    for (const HostRank host : share.hosts) {
      const double from = std::max(floor, out_[host].UsedUntil(floor));
      if (from > end) continue;
      work += from * rate_[host];
      rate += rate_[host];
    }
    if (rate == 0 || work / rate >= end) return end;  // none, by rounding; or none fell out
    end = work / rate;
  }
}

}  // namespace crossmesh
