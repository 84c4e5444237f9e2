#include "planner/pipeline/order_proof.h"

#include "planner/pipeline/waiting_ranks.h"

#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

// Lets ranks go on, in any order, until none can.
class OrderProver {
 public:
  explicit OrderProver(const OpTable& ops)
      : ops_(ops), waiting_(ops.size(), ops.profile().ranks()), ended_(ops.size(), false) {
    for (RankIndex rank = 0; rank < ops.profile().ranks(); ++rank) {
      next_.push_back(ops.first(rank));
      free_.push_back(rank);
    }
  }

  absl::Status Prove() {
    while (!free_.empty()) {
      const RankIndex rank = free_.back();
      free_.pop_back();
      Advance(rank);
    }
    for (RankIndex rank = 0; rank < std::ssize(next_); ++rank) {
      if (!IsDone(rank)) return Circle(rank);
    }
    return absl::OkStatus();
  }

 private:
  bool IsDone(RankIndex rank) const { return next_[rank] == ops_.first(rank + 1); }
  OpIndex FindWaited(RankIndex rank) const {
    return ops_.FindWaitedByStep(next_[rank], [this](OpIndex op) { return ended_[op]; });
  }

  void Advance(RankIndex rank) {
    while (!IsDone(rank)) {
      if (const OpIndex waited = FindWaited(rank); waited != OpTable::kNone) {
        waiting_.Add(rank, waited);
        return;
      }
      const OpIndex end = ops_.EndOf(next_[rank]);
      for (OpIndex& next = next_[rank]; next < end; ++next) {
        ended_[next] = true;
        waiting_.Release(next, [this](RankIndex other) { free_.push_back(other); });
      }
    }
  }

  // Every rank that is not done waits for an op of such a rank, at its next op or a later one.
  absl::Status Circle(RankIndex rank) const {
    std::vector<bool> seen(next_.size(), false);
    // Following what each rank waits for must come round to a rank that was seen: the circle begins
    // there, wherever the walk began.
    for (; !seen[rank]; rank = ops_.rank_of(FindWaited(rank))) seen[rank] = true;
    std::vector<std::string> steps;
    const RankIndex begin = rank;
    do {
      const OpIndex waited = FindWaited(rank);
      const RankIndex other = ops_.rank_of(waited);
      steps.push_back(absl::StrCat("rank ", rank, ": ", ops_.NameOfStep(next_[rank]), " waits for ",
                                   ops_.NameOfStep(ops_.StepOf(waited))));
      if (ops_.StepOf(waited) != next_[other]) {
        absl::StrAppend(&steps.back(), ", behind ", ops_.NameOfStep(next_[other]), " on rank ",
                        other);
      }
      rank = other;
    } while (rank != begin);
    return absl::InvalidArgumentError(
        absl::StrCat("schedule: expected an order in which no op waits for itself, found ",
                     absl::StrJoin(steps, "; ")));
  }

  const OpTable& ops_;
  std::vector<OpIndex> next_;    // by rank
  std::vector<RankIndex> free_;  // to look at
  WaitingRanks waiting_;
  std::vector<bool> ended_;  // by op
};

}  // namespace

absl::Status ProveOrder(const OpTable& ops) { return OrderProver(ops).Prove(); }

}  // namespace crossmesh
