#pragma once

#include "planner/pipeline/schedule.h"

#include <absl/status/statusor.h>

namespace crossmesh {

// 1F1B (PipeDream-Flush: Narayanan et al., arXiv 2006.09503): a window one larger for each stage
// further from the end, so that the first backward op meets a full pipeline. With fewer
// microbatches than stages, windows are cut. InvalidArgument with no stages or no microbatches.
absl::StatusOr<Schedule> MakeOneForwardOneBackward(int32_t stages, int32_t microbatches);

}  // namespace crossmesh
