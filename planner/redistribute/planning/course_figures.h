#pragma once

#include "common/plan/course.h"
#include "common/plan/plan.h"
#include "common/plan/slicing.h"
#include "planner/reshard/plan_reshard.h"

#include <span>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// The bound and the prediction of a plan of courses, as the network's description has its devices.
//
// In host memory steps of several instances overlap, as course_prediction.h says. A GPU carries out
// one step after the other: a course takes the sum of its steps for each instance. Of GPUs and host
// memory in one plan, those `over_gpus` (separate_gpus.h) take what GPUs do and all others what
// host memory does, one after the other, since they may share ports; the bound is that of host
// memory. What is reduced between steps is not counted, nor copies to bounce buffers. `slicing` is
// of the request's tensors.
absl::StatusOr<PlanFigures> FiguresOfCourses(const ReshardRequest& request, const Slicing& slicing,
                                             const std::vector<Course<Plan>>& courses,
                                             std::span<const DeviceRank> over_gpus);

}  // namespace crossmesh
