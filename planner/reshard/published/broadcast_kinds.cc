#include "planner/reshard/published/broadcast_kinds.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace crossmesh {
namespace {

int64_t ChainRate(std::span<const HostRank> chain, const PortRates& rates) {
  int64_t rate = PortRates::kMax;
  for (size_t i = 0; i < chain.size(); ++i) {
    rate = std::min(rate, rates.in[chain[i]]);
    if (i + 1 < chain.size()) rate = std::min(rate, rates.out[chain[i]]);
  }
  return rate;
}

std::vector<KindSender> SendersOf(const OpenBroadcast& open, const PortRates& rates) {
  const int64_t chain_rate = ChainRate(open.broadcast.chain, rates);
  std::vector<KindSender> senders;
  for (const HostRank host : open.candidates) {
    const int64_t rate = std::min(chain_rate, rates.out[host]);
    senders.push_back(
        {.host = host,
         .seconds = static_cast<double>(open.broadcast.bytes) / static_cast<double>(rate)});
  }
  std::ranges::sort(senders, {}, &KindSender::host);
  return senders;
}

// What a host is to the kinds. Hosts in a chain differ from all others.
struct HostRole {
  std::vector<int64_t> sends;  // kinds, ascending
  int64_t rate = 0;
  HostRank in_chain = -1;  // the host itself

  auto operator<=>(const HostRole&) const = default;
};

void NumberEquals(const PortRates& rates, std::vector<BroadcastKind>& kinds) {
  std::vector<HostRole> roles(rates.out.size());
  for (size_t k = 0; k < kinds.size(); ++k) {
    for (const HostRank host : kinds[k].chain) roles[host].in_chain = host;
    for (const KindSender& sender : kinds[k].senders) {
      roles[sender.host].sends.push_back(static_cast<int64_t>(k));
      roles[sender.host].rate = rates.out[sender.host];
    }
  }
  // Hosts of equal roles get one number: of those the search tries only one.
  std::map<HostRole, int32_t> numbers;
  std::vector<int32_t> equals(roles.size());
  for (size_t host = 0; host < roles.size(); ++host) {
    const auto next = static_cast<int32_t>(numbers.size());
    equals[host] = numbers.try_emplace(std::move(roles[host]), next).first->second;
  }
  for (BroadcastKind& kind : kinds) {
    for (KindSender& sender : kind.senders) sender.equals = equals[sender.host];
  }
}

}  // namespace

double BroadcastKind::seconds() const {
  return std::ranges::min_element(senders, {}, &KindSender::seconds)->seconds;
}

std::vector<BroadcastKind> GroupByKind(std::span<const OpenBroadcast> open,
                                       const HostNetwork& network) {
  using Key = std::tuple<int64_t, std::vector<HostRank>, std::vector<HostRank>>;
  std::map<Key, size_t> numbers;
  std::vector<BroadcastKind> kinds;
  for (size_t i = 0; i < open.size(); ++i) {
    const Broadcast& broadcast = open[i].broadcast;
    std::vector<HostRank> candidates = open[i].candidates;
    std::ranges::sort(candidates);
    const auto [entry, is_new] = numbers.try_emplace(
        Key(broadcast.bytes, broadcast.chain, std::move(candidates)), kinds.size());
    if (is_new) {
      kinds.push_back(
          {.chain = broadcast.chain, .senders = SendersOf(open[i], network.fastest_nic)});
    }
    kinds[entry->second].members.push_back(static_cast<int64_t>(i));
  }
  NumberEquals(network.fastest_nic, kinds);
  return kinds;
}

}  // namespace crossmesh
