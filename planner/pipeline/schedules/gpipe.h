#pragma once

#include "planner/pipeline/schedule.h"

#include <absl/status/statusor.h>

namespace crossmesh {

// GPipe (Huang et al., arXiv 1811.06965): on every stage all forward ops, then all backward ops,
// both in the order of the microbatches. Holds all microbatches. InvalidArgument with no stages or
// no microbatches.
absl::StatusOr<Schedule> MakeGpipe(int32_t stages, int32_t microbatches);

}  // namespace crossmesh
