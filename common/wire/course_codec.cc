#include "common/wire/course_codec.h"

#include "common/base/status_macros.h"
#include "common/mesh/manifest.h"
#include "common/mesh/reduction.h"
#include "common/wire/part_error.h"
#include "common/wire/worker_part_codec.h"

#include <cstdint>
#include <optional>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::StatusOr<Reduction> ReductionFromProto(const v1::WorkerPart::Reduction& proto) {
  if (proto.kind() == v1::WorkerPart::Reduction::KIND_UNSPECIFIED ||
      !v1::WorkerPart::Reduction::Kind_IsValid(proto.kind())) {
    return PartError("kind of a reduction", "one that is known", proto.kind());
  }
  return Reduction{.kind = static_cast<ReductionKind>(static_cast<int>(proto.kind()) - 1),
                   .divisor = proto.divisor()};
}

absl::StatusOr<std::optional<StepCollective>> CollectiveFromProto(
    v1::WorkerPart::Collective proto) {
  if (proto == v1::WorkerPart::COLLECTIVE_UNSPECIFIED) return std::nullopt;
  if (!v1::WorkerPart::Collective_IsValid(proto)) {
    return PartError("collective of a step", "one that is known", proto);
  }
  return static_cast<StepCollective>(static_cast<int>(proto) - 1);
}

absl::Status ReadTensors(const v1::WorkerPart::Course& proto, Course<WorkerPart>& course) {
  int64_t tensor = 0;
  for (const int32_t difference : proto.tensors()) {
    tensor += difference;
    if (tensor < 0 || tensor >= Manifest::kTensorsMax) {
      return PartError("tensor of a course",
                       absl::StrCat("from 0 to below ", Manifest::kTensorsMax), tensor);
    }
    course.tensors.push_back(static_cast<int32_t>(tensor));
  }
  return absl::OkStatus();
}

}  // namespace

v1::WorkerPart::Slab ToProto(const Slab& slab) {
  v1::WorkerPart::Slab proto;
  proto.set_summand_dimensions(slab.summand_dimensions);
  proto.set_row_dimension(slab.row_dimension);
  proto.set_slabs(slab.slabs);
  proto.set_in_source(slab.in_source);
  proto.set_in_destination(slab.in_destination);
  return proto;
}

Slab FromProto(const v1::WorkerPart::Slab& proto) {
  return {.summand_dimensions = proto.summand_dimensions(),
          .row_dimension = proto.row_dimension(),
          .slabs = proto.slabs(),
          .in_source = proto.in_source(),
          .in_destination = proto.in_destination()};
}

void AddCourses(const WorkerPart& part, v1::WorkerPart& proto) {
  for (const Course<WorkerPart>& course : part.courses()) {
    v1::WorkerPart::Course& added = *proto.add_courses();
    added.set_instances(course.instances);
    added.set_buffers(course.buffers);
    added.set_releases_source(course.releases_source);
    int32_t before = 0;
    for (const int32_t tensor : course.tensors) {
      added.add_tensors(tensor - std::exchange(before, tensor));
    }
    for (const Course<WorkerPart>::Step& step : course.steps) {
      v1::WorkerPart::Course::Step& of = *added.add_steps();
      *of.mutable_move() = ToProto(*step.move);
      of.set_adds_own(step.adds_own);
      if (step.collective.has_value()) {
        of.set_collective(
            static_cast<v1::WorkerPart::Collective>(static_cast<int>(*step.collective) + 1));
      }
      if (!step.reduction.has_value()) continue;
      of.mutable_reduction()->set_kind(
          static_cast<v1::WorkerPart::Reduction::Kind>(static_cast<int>(step.reduction->kind) + 1));
      of.mutable_reduction()->set_divisor(step.reduction->divisor);
    }
  }
}

absl::StatusOr<std::shared_ptr<const std::vector<Course<WorkerPart>>>> CoursesFromProto(
    const v1::WorkerPart& proto) {
  if (proto.courses().empty()) return nullptr;
  int64_t steps = 0;
  for (const v1::WorkerPart::Course& from : proto.courses()) steps += from.steps_size();
  // Each has tables of its own.
  if (steps > kCourseStepsMax) {
    return PartError("courses", absl::StrCat("at most ", kCourseStepsMax, " steps"), steps);
  }
  std::vector<Course<WorkerPart>> courses;
  for (const v1::WorkerPart::Course& from : proto.courses()) {
    Course<WorkerPart>& course = courses.emplace_back();
    course.instances = from.instances();
    course.buffers = from.buffers();
    course.releases_source = from.releases_source();
    RETURN_IF_ERROR(ReadTensors(from, course));
    for (const v1::WorkerPart::Course::Step& step : from.steps()) {
      if (step.move().courses_size() > 0) {
        return PartError("step of a course", "a part without courses", step.move().courses_size());
      }
      ASSIGN_OR_RETURN(WorkerPart move, FromProto(step.move()));
      course.steps.push_back({.move = std::make_shared<const WorkerPart>(std::move(move))});
      ASSIGN_OR_RETURN(course.steps.back().collective, CollectiveFromProto(step.collective()));
      course.steps.back().adds_own = step.adds_own();
      if (!step.has_reduction()) continue;
      ASSIGN_OR_RETURN(course.steps.back().reduction, ReductionFromProto(step.reduction()));
    }
  }
  return std::make_shared<const std::vector<Course<WorkerPart>>>(std::move(courses));
}

}  // namespace crossmesh
