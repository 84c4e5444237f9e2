#pragma once

#include "planner/pipeline/op_table.h"
#include "planner/pipeline/planning/edge_plans.h"

#include <cstdint>
#include <vector>

#include <absl/status/status.h>

namespace crossmesh {

// Proves that no rank waits for ever for memory: an op begins when what lay where its outputs go
// has left, a transfer when what lay where it goes was used. `buffers`: messages of each plan for
// which either end has memory, in the order of the rank's ops. NeededBuffers are enough, with fewer
// ops may wait for each other: ResourceExhausted, with one of them for each rank. Cost: linear.
absl::Status ProveBuffers(const OpTable& ops, const std::vector<int64_t>& samples,
                          const std::vector<EdgePlan>& plans, const std::vector<int32_t>& buffers);

}  // namespace crossmesh
