#include "planner/reshard/published/broadcast_greedy.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <random>
#include <span>
#include <utility>

#include <absl/numeric/int128.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// As in the released solver of arXiv 2211.05322.
constexpr int kSetsPerRound = 100;

class GreedyOrder {
 public:
  GreedyOrder(std::vector<OpenBroadcast> broadcasts, int64_t hosts, uint64_t seed,
              CancelCheck cancelled)
      : left_(std::move(broadcasts)),
        random_(seed),
        cancelled_(cancelled),
        load_(hosts),
        out_busy_(hosts),
        in_busy_(hosts) {}

  absl::StatusOr<std::vector<Broadcast>> Run() && {
    std::vector<Broadcast> order;
    order.reserve(left_.size());
    pool_.resize(left_.size());
    for (size_t i = 0; i < pool_.size(); ++i) pool_[i] = static_cast<int64_t>(i);
    while (!pool_.empty()) {
      ASSIGN_OR_RETURN(const Set best, BestSet());
      if (draws_ > kGreedyDrawsMax) {
        return absl::ResourceExhaustedError(
            absl::StrCat("strategy broadcast_greedy looks at more than ", kGreedyDrawsMax,
                         " of its ", left_.size(), " broadcasts"));
      }
      for (const Member& member : best) {
        Broadcast& chosen =
            order.emplace_back(std::exchange(left_[member.broadcast].broadcast, {.bytes = kDone}));
        chosen.sender = member.sender;
        load_[member.sender] += chosen.bytes;
      }
      std::erase_if(pool_, [this](int64_t i) { return left_[i].broadcast.bytes == kDone; });
    }
    return order;
  }

 private:
  static constexpr int64_t kDone = -1;

  struct Member {
    int64_t broadcast;
    HostRank sender;
  };
  using Set = std::vector<Member>;

  absl::StatusOr<Set> BestSet() {
    // A set cannot grow once all hosts that could send, or all that could receive, are taken.
    CountHosts();
    Set best;
    for (int i = 0; i < kSetsPerRound && draws_ <= kGreedyDrawsMax; ++i) {
      RETURN_IF_ERROR(CheckWanted(cancelled_));
      Set set = DrawSet();
      if (set.size() > best.size() ||
          (set.size() == best.size() && Variance(set) < Variance(best))) {
        best = std::move(set);
      }
    }
    return best;
  }

  // Hosts that can send or receive one of the broadcasts that are left.
  void CountHosts() {
    std::vector<bool> sends(load_.size()), receives(load_.size());
    for (const int64_t i : pool_) {
      for (const HostRank host : left_[i].candidates) sends[host] = true;
      for (const HostRank host : left_[i].broadcast.chain) receives[host] = true;
    }
    senders_ = std::ranges::count(sends, true);
    receivers_ = std::ranges::count(receives, true);
  }

  Set DrawSet() {
    // Ports that were taken carry the number of their set: a new set frees all of them at once.
    ++set_number_;
    int64_t free_receivers = receivers_;
    Set set;
    for (size_t i = 0;
         i < pool_.size() && free_receivers > 0 && static_cast<int64_t>(set.size()) < senders_;
         ++i) {
      // A random order drawn as far as it is needed: the beginning of a Fisher-Yates shuffle.
      std::swap(pool_[i], pool_[i + Below(pool_.size() - i)]);
      const OpenBroadcast& open = left_[pool_[i]];
      ++draws_;
      if (!ChainIsFree(open.broadcast.chain)) continue;
      const HostRank sender = DrawSender(open.candidates);
      if (sender < 0) continue;
      Occupy(open.broadcast, sender);
      free_receivers -= static_cast<int64_t>(open.broadcast.chain.size());
      set.push_back({pool_[i], sender});
    }
    return set;
  }

  bool ChainIsFree(std::span<const HostRank> chain) const {
    for (size_t i = 0; i < chain.size(); ++i) {
      if (in_busy_[chain[i]] == set_number_) return false;
      if (i + 1 < chain.size() && out_busy_[chain[i]] == set_number_) return false;
    }
    return true;
  }

  void Occupy(const Broadcast& broadcast, HostRank sender) {
    out_busy_[sender] = set_number_;
    for (size_t i = 0; i < broadcast.chain.size(); ++i) {
      in_busy_[broadcast.chain[i]] = set_number_;
      if (i + 1 < broadcast.chain.size()) out_busy_[broadcast.chain[i]] = set_number_;
    }
  }

  // A free candidate by weight, or -1.
  HostRank DrawSender(std::span<const HostRank> candidates) {
    const int64_t most = *std::ranges::max_element(load_);
    int64_t weights = 0;
    for (const HostRank host : candidates) weights += WeightOf(host, most);
    if (weights == 0) return -1;
    int64_t at = static_cast<int64_t>(Below(static_cast<uint64_t>(weights)));
    for (const HostRank host : candidates) {
      at -= WeightOf(host, most);
      if (at < 0) return host;
    }
    return -1;
  }

  int64_t WeightOf(HostRank host, int64_t most) const {
    // The released solver's weight: 1 for the most loaded, so that every free host may be drawn.
    return out_busy_[host] == set_number_ ? 0 : most - load_[host] + 1;
  }

  // Of the senders' loads after the set, times their number.
  double Variance(const Set& set) const {
    std::vector<int64_t> load = load_;
    for (const Member& m : set) load[m.sender] += left_[m.broadcast].broadcast.bytes;
    double sum = 0, squares = 0;
    for (const int64_t bytes : load) {
      sum += static_cast<double>(bytes);
      squares += static_cast<double>(bytes) * static_cast<double>(bytes);
    }
    return squares - sum * sum / static_cast<double>(load.size());
  }

  // 0 <= result < end, as good as even.
  uint64_t Below(uint64_t end) {
    return absl::Uint128High64(absl::uint128(random_()) * absl::uint128(end));
  }

  std::vector<OpenBroadcast> left_;  // those in the pool
  std::vector<int64_t> pool_;
  std::mt19937_64 random_;
  const CancelCheck cancelled_;
  std::vector<int64_t> load_;      // bytes that a host is the sender of
  std::vector<int64_t> out_busy_;  // number of the set in which the port was last taken
  std::vector<int64_t> in_busy_;
  int64_t set_number_ = 0;
  int64_t senders_ = 0;
  int64_t receivers_ = 0;
  int64_t draws_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<Broadcast>> OrderGreedily(std::vector<OpenBroadcast> broadcasts,
                                                     int64_t hosts, uint64_t seed,
                                                     CancelCheck cancelled) {
  return GreedyOrder(std::move(broadcasts), hosts, seed, cancelled).Run();
}

}  // namespace crossmesh
