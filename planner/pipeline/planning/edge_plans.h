#pragma once

#include "common/base/byte_count.h"
#include "common/base/cancel_check.h"
#include "common/plan/plan.h"
#include "planner/pipeline/op_table.h"
#include "planner/pipeline/planning/pipeline_codec.h"
#include "planner/pipeline/planning/pipeline_description.h"

#include <cstdint>
#include <memory>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// A message of an edge in one direction, for a microbatch of one size.
struct EdgePlan {
  TransferIndex transfer = 0;  // by place of the edge in the description
  int64_t samples = 0;
  double seconds = 0;                // predicted by the plan, or given by hand
  std::shared_ptr<const Plan> plan;  // proven; null where there are no tensors
  // On the device of either end that has most of it.
  ByteCount sender_bytes;
  ByteCount receiver_bytes;
};

// Plans what passes between different ranks, by transfer, then in the order of the sizes. The
// gradient has shapes and layouts of its activation, from the one side to the other. Times given by
// hand are in proportion to the samples. InvalidArgument and what PlanReshard and Prove find, with
// the edge; ResourceExhausted, with the edge, as soon as the plans have more than `hops_max` hops
// together; Cancelled. Cost: that of the plans.
absl::StatusOr<std::vector<EdgePlan>> PlanEdges(const PipelineDescription& pipeline,
                                                CancelCheck cancelled = NeverCancelled,
                                                int64_t hops_max = PipelineLimits::kHops);

}  // namespace crossmesh
