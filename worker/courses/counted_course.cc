#include "worker/courses/counted_course.h"

#include "common/plan/course.h"
#include "common/plan/course_tables.h"
#include "worker/courses/course_places.h"
#include "worker/courses/course_steps.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace crossmesh {
namespace {

// Of one instance of a step, at a device.
int64_t SummandBytes(const TensorTable& table, const DeviceId& device) {
  const std::optional<DeviceRank> rank = table.FindDevice(device);
  if (!rank.has_value()) return 0;
  int64_t bytes = 0;
  for (const int32_t group : table.group_of_tensor()) {
    const TileRows rows = RowsOf(table, Side::kDestination, group, *rank);
    bytes += rows.bytes * rows.summands;
  }
  return bytes;
}

}  // namespace

CountedCourse::CountedCourse(Ports ports, const WorkerPart& part) : ports_(std::move(ports)) {
  for (const DeviceRank device : part.spec().devices) {
    const DeviceId& name = part.tensors().devices()[device];
    array_bytes_ += ArrayBytesOf(part, name, CourseRunner::kGpu);
    for (const Course<WorkerPart>& course : part.courses()) {
      for (const Course<WorkerPart>::Step& step : course.steps) {
        if (!step.reduction.has_value()) continue;
        reduced_bytes_ += course.instances * SummandBytes(step.move->tensors(), name);
      }
    }
  }
  for (const Course<WorkerPart>& course : part.courses()) {
    for (const StepKind kind : KindsOf(course)) steps_.push_back({kind, course.instances});
  }
  ports_.counters.AddArrays(array_bytes_);
}

CountedCourse::~CountedCourse() { ports_.counters.AddArrays(-array_bytes_); }

void CountedCourse::OnDeviceDone(const TaskKey& key, const DeviceReport& report) {
  ports_.observer.OnDeviceDone(key, report);
}

void CountedCourse::OnTaskDone(const TaskReport& report) {
  // The next task may come before this goes.
  ports_.counters.AddArrays(-std::exchange(array_bytes_, 0));
  const bool is_whole =
      report.status.ok() && std::ranges::all_of(report.devices, [](const DeviceReport& device) {
        return device.status.ok();
      });
  if (is_whole) {
    for (const auto& [kind, steps] : steps_) ports_.counters.CountSteps(kind, steps);
    ports_.counters.reduced_bytes += reduced_bytes_;
  }
  ports_.observer.OnTaskDone(report);
  ports_.over();
}

}  // namespace crossmesh
