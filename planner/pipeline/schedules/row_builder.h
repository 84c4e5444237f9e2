#pragma once

#include "planner/pipeline/op.h"
#include "planner/pipeline/schedule.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

namespace crossmesh {

// Writes the row of a rank whose stages take microbatches in ascending order: each call adds the
// next op of its kind, or nothing when the stage has had all its microbatches. Thread-compatible.
class RowBuilder {
 public:
  explicit RowBuilder(int32_t microbatches) : microbatches_(microbatches) {}

  void Forward(StageIndex stage) { Add(OpKind::kForward, stage); }
  void Backward(StageIndex stage) { Add(OpKind::kBackward, stage); }
  // Its gradient of the weights is pending from then on.
  void InputGradient(StageIndex stage) {
    if (Add(OpKind::kInputGradient, stage)) pending_.push_back(row_.back());
  }
  // The oldest that is pending of the stage, or of all; nothing when none is.
  void WeightGradient(StageIndex stage) {
    for (auto op = pending_.begin(); op != pending_.end(); ++op) {
      if (op->stage == stage) return Take(op);
    }
  }
  void WeightGradient() {
    if (!pending_.empty()) Take(pending_.begin());
  }
  bool has_pending() const { return !pending_.empty(); }
  int32_t pending(StageIndex stage) const {
    return static_cast<int32_t>(std::ranges::count(pending_, stage, &Op::stage));
  }

  // Have all microbatches of the stage had their forward op?
  bool IsForwardDone(StageIndex stage) const {
    const auto found = next_.find({OpKind::kForward, stage});
    return found != next_.end() && found->second >= microbatches_;
  }

  std::vector<Op> Finish() && { return std::move(row_); }

 private:
  bool Add(OpKind kind, StageIndex stage) {
    // A backward op and a gradient of the input are the same step of a stage.
    const OpKind step = GivesInputGradient(kind) ? OpKind::kBackward : kind;
    MicrobatchIndex& next = next_[{step, stage}];
    if (next == microbatches_) return false;
    row_.push_back({kind, stage, next++});
    return true;
  }
  void Take(const std::deque<Op>::iterator& op) {
    row_.push_back({OpKind::kWeightGradient, op->stage, op->microbatch});
    pending_.erase(op);
  }

  const int32_t microbatches_;
  absl::flat_hash_map<std::pair<OpKind, StageIndex>, MicrobatchIndex> next_;
  std::deque<Op> pending_;  // gradients of the input whose weights' have not come yet
  std::vector<Op> row_;
};

}  // namespace crossmesh
