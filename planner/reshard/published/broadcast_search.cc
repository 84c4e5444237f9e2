#include "planner/reshard/published/broadcast_search.h"

#include "common/base/status_macros.h"
#include "planner/reshard/published/broadcast_kinds.h"
#include "planner/reshard/published/broadcast_port_times.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Ends that differ by less, relative to their size, count as equal.
constexpr double kRounding = 1e-9;

class OrderSearch {
 public:
  OrderSearch(std::span<const OpenBroadcast> open, std::vector<Broadcast> incumbent,
              const HostNetwork& network, const BroadcastSearchOptions& options)
      : open_(open),
        kinds_(GroupByKind(open, network)),
        network_(network),
        options_(options),
        ports_(kinds_, network),
        best_{.order = std::move(incumbent)} {
    best_.seconds = BroadcastMakespan(best_.order, network);
  }

  absl::StatusOr<SearchedOrder> Run() && {
    const double least = ports_.LowerBound(0);
    best_.complete = true;
    Branch({.kind = -1, .start = -1});
    while (!branches_.empty() && IsBetter(least)) {
      RETURN_IF_ERROR(CheckWanted(options_.cancelled));
      if (best_.nodes >= options_.nodes_max) {
        best_.complete = false;
        break;
      }
      if (branches_.back().next == choices_.size()) {
        LeaveBranch();
      } else {
        Try(choices_[branches_.back().next++]);
      }
    }
    return std::move(best_);
  }

 private:
  // What an order may go on with.
  struct Choice {
    int32_t kind = 0;
    int32_t sender = 0;  // index into the kind's
    double start = 0;
    double end = 0;
    double urgency = 0;

    // Soon, then urgent things first. The rest makes the order of choices total.
    auto Rank() const { return std::tuple(start, -urgency, end, kind, sender); }
  };
  // The choices after a beginning: choices_ from `first` on, up to those of the next branch.
  struct Branching {
    size_t first = 0;
    size_t next = 0;  // the first that is not tried yet
  };

  bool IsBetter(double seconds) const { return seconds < best_.seconds * (1 - kRounding); }

  void Try(const Choice choice) {
    ports_.Place(choice.kind, kinds_[choice.kind].senders[choice.sender]);
    if (IsBetter(ports_.LowerBound(choice.start))) {
      if (ports_.placed() < std::ssize(open_)) {
        Branch(choice);
        return;
      }
      Keep();
    }
    ports_.TakeBack();
  }

  void LeaveBranch() {
    choices_.resize(branches_.back().first);
    branches_.pop_back();
    if (!branches_.empty()) ports_.TakeBack();
  }

  // Adds what may follow. Where a broadcast could be over before any other begins, those that begin
  // later are left out: putting it first would delay none of them.
  void Branch(const Choice& last) {
    const size_t first = choices_.size();
    double soonest_end = std::numeric_limits<double>::infinity();
    for (size_t k = 0; k < kinds_.size(); ++k) {
      const auto kind = static_cast<int32_t>(k);
      if (ports_.left(kind) == 0) continue;
      const double chain_free = ports_.ChainFree(kind);
      const double urgency = ports_.Urgency(kind);
      const std::vector<KindSender>& senders = kinds_[k].senders;
      for (size_t s = 0; s < senders.size(); ++s) {
        if (HasEqualBefore(senders, s)) continue;
        ++best_.nodes;
        const double start = std::max(chain_free, ports_.SenderFree(senders[s].host));
        const double end = start + senders[s].seconds;
        soonest_end = std::min(soonest_end, end);
        if (std::pair(start, kind) <= std::pair(last.start, last.kind)) continue;
        choices_.push_back({kind, static_cast<int32_t>(s), start, end, urgency});
      }
    }
    const auto begin = choices_.begin() + static_cast<std::ptrdiff_t>(first);
    choices_.erase(
        std::remove_if(begin, choices_.end(),
                       [soonest_end](const Choice& c) { return c.start >= soonest_end; }),
        choices_.end());
    std::sort(choices_.begin() + static_cast<std::ptrdiff_t>(first), choices_.end(),
              [](const Choice& a, const Choice& b) { return a.Rank() < b.Rank(); });
    branches_.push_back({.first = first, .next = first});
  }

  // A sender before this one does as well now and later.
  bool HasEqualBefore(const std::vector<KindSender>& senders, size_t s) const {
    for (size_t before = 0; before < s; ++before) {
      if (senders[before].equals == senders[s].equals &&
          ports_.SenderFree(senders[before].host) == ports_.SenderFree(senders[s].host)) {
        return true;
      }
    }
    return false;
  }

  // The order that has just become whole is the best so far.
  void Keep() {
    best_.order.clear();
    std::vector<size_t> used(kinds_.size());
    for (const Branching& branch : branches_) {
      const Choice& choice = choices_[branch.next - 1];
      const BroadcastKind& kind = kinds_[choice.kind];
      Broadcast& next =
          best_.order.emplace_back(open_[kind.members[used[choice.kind]++]].broadcast);
      next.sender = kind.senders[choice.sender].host;
    }
    best_.seconds = BroadcastMakespan(best_.order, network_);
  }

  const std::span<const OpenBroadcast> open_;
  const std::vector<BroadcastKind> kinds_;
  const HostNetwork& network_;
  const BroadcastSearchOptions& options_;
  BroadcastPortTimes ports_;
  SearchedOrder best_;
  std::vector<Choice> choices_;
  std::vector<Branching> branches_;  // after each beginning of the order at hand, the empty one too
};

}  // namespace

std::string SearchedOrder::ToString() const {
  return absl::StrCat(complete ? "complete" : "not complete", ": ", nodes, " orders looked at");
}

absl::StatusOr<SearchedOrder> SearchOrder(std::span<const OpenBroadcast> open,
                                          std::vector<Broadcast> incumbent,
                                          const HostNetwork& network,
                                          const BroadcastSearchOptions& options) {
  return OrderSearch(open, std::move(incumbent), network, options).Run();
}

}  // namespace crossmesh
