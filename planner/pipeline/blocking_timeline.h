#pragma once

#include "planner/pipeline/timeline.h"

#include <compare>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// What occupies ranks: an op, or a message with its output. Ordered as all ranks take them.
struct BlockingStep {
  double seconds = 0;  // when it would begin if messages took no time
  bool is_op = false;
  OpIndex op = 0;  // the second of fused ops stands right after the first
  TransferIndex transfer = 0;

  friend auto operator<=>(const BlockingStep&, const BlockingStep&) = default;
};

// All steps under TransferModel::kBlocking, in their order: each rank takes those that it computes,
// sends or receives, one after the other. Errors as of SimulatePipeline.
absl::StatusOr<std::vector<BlockingStep>> OrderBlockingSteps(const OpTable& ops);

// SimulatePipeline under TransferModel::kBlocking, but for the figures of the whole.
absl::StatusOr<PipelineTimeline> SimulateBlocking(const OpTable& ops);

}  // namespace crossmesh
