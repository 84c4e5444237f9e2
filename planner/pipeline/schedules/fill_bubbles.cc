#include "planner/pipeline/schedules/fill_bubbles.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/memory.h"
#include "planner/pipeline/op_table.h"
#include "planner/pipeline/timeline.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace crossmesh {
namespace {

// A chain whose stages are where the schedule has them. Ops take a second; a microbatch is a byte.
PipelineProfile ChainOf(const Schedule& schedule) {
  PipelineProfile chain;
  chain.stages.resize(schedule.stages, {.forward_seconds = 1,
                                        .input_gradient_seconds = 1,
                                        .weight_gradient_seconds = 1,
                                        .weight_gradient_bytes = ByteCount(1)});
  chain.rank_bytes_max.resize(schedule.ranks.size());
  for (StageIndex s = 1; s < schedule.stages; ++s) chain.edges.push_back({.from = s - 1, .to = s});
  for (RankIndex rank = 0; rank < std::ssize(schedule.ranks); ++rank) {
    for (const Op& op : schedule.ranks[rank]) {
      if (op.stage >= 0 && op.stage < schedule.stages) chain.stages[op.stage].rank = rank;
    }
  }
  return chain;
}

class BubbleFiller {
 public:
  explicit BubbleFiller(const OpTable& ops)
      : ops_(ops), ended_(ops.size(), false), held_(ops.profile().ranks(), 0) {
    for (const RankMemory& memory : PeakMemory(ops)) {
      held_max_ = std::max(held_max_, memory.bytes().value());
    }
    for (RankIndex rank = 0; rank < ops.profile().ranks(); ++rank) next_.push_back(ops.first(rank));
    filled_ = {.stages = ops.schedule().stages, .microbatches = ops.schedule().microbatches};
    filled_.ranks.resize(next_.size());
  }

  // All ranks do an op, or nothing, and then the next. The first of all ops that are left, in an
  // order in which none waits for a later one, can always begin.
  Schedule Fill() && {
    for (int32_t left = ops_.size(); left > 0;) {
      std::vector<OpIndex> begun;
      for (RankIndex rank = 0; rank < std::ssize(next_); ++rank) {
        if (const OpIndex op = FindReady(rank); op != OpTable::kNone) begun.push_back(op);
      }
      // After all ranks have chosen, so that no rank sees what another begins in the same step.
      for (const OpIndex op : begun) Do(op);
      left -= static_cast<int32_t>(begun.size());
    }
    return std::move(filled_);
  }

 private:
  static int64_t HeldBy(const Op& op) {
    if (op.kind == OpKind::kForward) return 1;
    return op.kind == OpKind::kInputGradient ? 0 : -1;
  }

  OpIndex FindReady(RankIndex rank) const {
    const auto ended = [this](OpIndex other) { return ended_[other]; };
    OpIndex weight_gradient = OpTable::kNone;
    int64_t held = held_[rank], most = held;  // before the op that is looked at
    for (OpIndex index = next_[rank]; index < ops_.first(rank + 1); ++index) {
      if (ended_[index]) continue;
      const Op& op = ops_.op(index);
      if (most + HeldBy(op) <= held_max_ && ops_.FindWaited(op, ended) == OpTable::kNone) {
        if (op.kind != OpKind::kWeightGradient) return index;
        if (weight_gradient == OpTable::kNone) weight_gradient = index;
      }
      // An op that is passed over is done later at the latest: room for it must stay.
      held += HeldBy(op);
      most = std::max(most, held);
    }
    return weight_gradient;
  }

  void Do(OpIndex index) {
    const RankIndex rank = ops_.rank_of(index);
    ended_[index] = true;
    held_[rank] += HeldBy(ops_.op(index));
    filled_.ranks[rank].push_back(ops_.op(index));
    while (next_[rank] < ops_.first(rank + 1) && ended_[next_[rank]]) ++next_[rank];
  }

  const OpTable& ops_;
  std::vector<bool> ended_;    // by op
  std::vector<int64_t> held_;  // microbatches, by rank
  int64_t held_max_ = 0;
  std::vector<OpIndex> next_;  // by rank: the first that has not ended
  Schedule filled_;
};

}  // namespace

absl::StatusOr<Schedule> FillBubbles(const Schedule& schedule) {
  const PipelineProfile chain = ChainOf(schedule);
  ASSIGN_OR_RETURN(const OpTable ops, OpTable::Create(schedule, chain));
  ASSIGN_OR_RETURN(const PipelineTimeline run, SimulatePipeline(ops, TransferModel::kLatency));
  Schedule filled = BubbleFiller(ops).Fill();
  ASSIGN_OR_RETURN(const OpTable filled_ops, OpTable::Create(filled, chain));
  ASSIGN_OR_RETURN(const PipelineTimeline filled_timeline,
                   SimulatePipeline(filled_ops, TransferModel::kLatency));
  return filled_timeline.seconds < run.seconds ? std::move(filled) : schedule;
}

}  // namespace crossmesh
