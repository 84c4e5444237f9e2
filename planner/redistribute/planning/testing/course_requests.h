// Redistributions as requests for plans that workers can carry out.

#pragma once

#include "common/mesh/data_type.h"
#include "common/plan/plan.h"
#include "planner/redistribute/planning/course_draft.h"
#include "planner/redistribute/redistribution_request.h"
#include "planner/reshard/plan_reshard.h"

#include <cstdint>

#include <absl/status/statusor.h>

namespace crossmesh {

struct CourseRequest {
  ReshardRequest request;
  CourseSizes sizes;
};

// The same change of layout of some tensors of `type`, on devices of which each host has so many.
// The mesh has an axis for each part of an axis that the request needs, so all parts are axes.
CourseRequest RequestOf(const RedistributionRequest& redistribution, int64_t devices_of_host,
                        int32_t tensors = 1, DataType type = DataType::kF32);

// A few tensors of one mesh, of which the two ends are by chance, from the seed alone; if
// `partial`, with partial sums in many cases. Sizes are so small that there are many instances, or
// so large that there is one.
CourseRequest RandomCourseRequest(uint64_t seed, bool partial);

// The plan of it.
absl::StatusOr<Plan> PlanOf(const CourseRequest& request);

}  // namespace crossmesh
