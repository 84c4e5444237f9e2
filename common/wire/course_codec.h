// Courses and slabs of a worker's part, to and from crossmesh.v1.

#pragma once

#include "common/plan/course.h"
#include "common/plan/tensor_table.h"
#include "common/plan/worker_part.h"
#include "crossmesh/v1/execution_service.pb.h"

#include <memory>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

v1::WorkerPart::Slab ToProto(const Slab& slab);
Slab FromProto(const v1::WorkerPart::Slab& proto);

// The part's courses, with the parts of their steps.
void AddCourses(const WorkerPart& part, v1::WorkerPart& proto);
// Null where there are none. InvalidArgument names the field; whether courses do what they are for
// is ProvePart's to say.
absl::StatusOr<std::shared_ptr<const std::vector<Course<WorkerPart>>>> CoursesFromProto(
    const v1::WorkerPart& proto);

}  // namespace crossmesh
