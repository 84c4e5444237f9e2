#pragma once

#include "common/mesh/topology.h"
#include "common/plan/course.h"
#include "common/plan/tensor_table.h"
#include "planner/redistribute/planning/course_draft.h"

#include <span>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// Of devices that are not all GPUs as the network describes them, those GPUs that need to exchange
// nothing with any other device in any step of the courses, nor that with them: as many as there
// are, but for what several hold that a device of the others needs, which the first of them gives.
// Ranks of `whole`, ascending.
//
// Example: on a mesh of two replicas, one on GPUs and one in host memory, what each gathers from
// its own devices; a sum over both has none. What Slicing::Create finds. Cost: linear in the
// classes of all steps and the devices of their sets, for each time that devices leave.
absl::StatusOr<std::vector<DeviceRank>> SeparateGpus(const TensorTable& whole,
                                                     std::span<const Course<StepTable>> courses,
                                                     const Topology& topology);

}  // namespace crossmesh
