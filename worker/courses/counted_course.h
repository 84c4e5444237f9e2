#pragma once

#include "common/plan/step_kind.h"
#include "common/plan/worker_part.h"
#include "worker/courses/course_counters.h"
#include "worker/executor/task.h"

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace crossmesh {

// A task with courses on GPUs, whose processes carry it out: passes on what it tells, and counts it
// when all of it has succeeded. Confined to the loop; destroyed when it is over.
class CountedCourse final : public TaskObserver {
 public:
  // All must outlive it. `over` is called last of all, when the observer knows; this may not be
  // destroyed there.
  struct Ports {
    CourseCounters& counters;
    TaskObserver& observer;
    std::function<void()> over;
  };

  // `part` is the task's.
  CountedCourse(Ports ports, const WorkerPart& part);
  ~CountedCourse() override;
  CountedCourse(const CountedCourse&) = delete;
  CountedCourse& operator=(const CountedCourse&) = delete;

  void OnDeviceDone(const TaskKey& key, const DeviceReport& report) override;
  void OnTaskDone(const TaskReport& report) override;

 private:
  const Ports ports_;
  // What all of it comes to.
  std::vector<std::pair<StepKind, int64_t>> steps_;
  int64_t reduced_bytes_ = 0;
  int64_t array_bytes_ = 0;
};

}  // namespace crossmesh
