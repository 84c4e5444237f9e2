#pragma once

#include "planner/pipeline/schedule.h"

#include <absl/status/statusor.h>

namespace crossmesh {

// Eager-1F1B (Zhuang et al., arXiv 2211.05322): a window two larger for each stage further from the
// end, so that a transfer each way between neighbours has an op of its own to hide behind. With few
// microbatches, windows are cut. InvalidArgument with no stages or no microbatches.
absl::StatusOr<Schedule> MakeEagerOneForwardOneBackward(int32_t stages, int32_t microbatches);

}  // namespace crossmesh
