#pragma once

#include "planner/pipeline/schedule.h"

#include <absl/status/statusor.h>

namespace crossmesh {

// Looped breadth first (Lamy-Poirier, arXiv 2211.05953): a rank takes all microbatches of its first
// stage, then of its next one, and goes back the same way, last microbatch first. Stages are placed
// as LoopedRank says. The bubble of interleaved 1F1B, few exposed transfers, all of the memory.
// InvalidArgument with a count below 1.
absl::StatusOr<Schedule> MakeLoopedBreadthFirst(int32_t ranks, int32_t chunks,
                                                int32_t microbatches);

}  // namespace crossmesh
