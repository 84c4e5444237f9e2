#include "worker/courses/counted_course_runner.h"

#include "common/base/status_macros.h"
#include "common/event_loop/event_loop.h"
#include "worker/courses/counted_course.h"
#include "worker/executor/prepared_part.h"

#include <absl/strings/str_cat.h>

namespace crossmesh {

CountedCourseRunner::CountedCourseRunner(const Ports& ports) : ports_(ports) {}

CountedCourseRunner::~CountedCourseRunner() = default;

absl::Status CountedCourseRunner::Start(TaskSpec spec, TaskObserver& observer) {
  const WorkerPart& part = spec.part->part();
  if (!part.has_courses() || spec.communicators.empty()) {
    return ports_.on_gpus.Start(std::move(spec), observer);
  }
  const TaskKey key = spec.key;
  if (tasks_.contains(key)) {
    return absl::AlreadyExistsError(absl::StrCat(key.ToString(), " runs here"));
  }
  auto counted = std::make_unique<CountedCourse>(
      CountedCourse::Ports{
          .counters = ports_.counters,
          .observer = observer,
          // Not from inside the task's own call.
          .over = [this, key] { ports_.loop.Post([this, key] { tasks_.erase(key); }); }},
      part);
  RETURN_IF_ERROR(ports_.on_gpus.Start(std::move(spec), *counted));
  tasks_[key] = std::move(counted);
  return absl::OkStatus();
}

}  // namespace crossmesh
