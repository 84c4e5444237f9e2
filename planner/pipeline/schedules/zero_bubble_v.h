#pragma once

#include "planner/pipeline/schedule.h"

#include <absl/status/statusor.h>

namespace crossmesh {

// ZB-V (Qi et al., arXiv 2405.15362): two stages to a rank, placed as VRank says. No bubble between
// begin and end of a rank, in as much memory as 1F1B's first stage holds, where all ops take
// equally long; for twice the transfers. InvalidArgument with no ranks or no microbatches.
absl::StatusOr<Schedule> MakeZeroBubbleV(int32_t ranks, int32_t microbatches);

}  // namespace crossmesh
