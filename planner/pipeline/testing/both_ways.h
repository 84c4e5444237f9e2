#pragma once

#include "planner/pipeline/profile.h"

namespace crossmesh {

// The profile of a pipeline whose ranks have the stages of both directions: all stages, edges and
// pairs twice, those of the second time on the ranks in reverse.
PipelineProfile BothWays(const PipelineProfile& profile);

}  // namespace crossmesh
