#pragma once

#include "worker/courses/course_counters.h"
#include "worker/executor/task_runner.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

class CountedCourse;
class EventLoop;

// Counts the courses that another runner runs on GPUs: those of tasks with communicators. Confined
// to the loop; destroyed when that has stopped.
class CountedCourseRunner final : public TaskRunner {
 public:
  // All must outlive it.
  struct Ports {
    EventLoop& loop;
    TaskRunner& on_gpus;
    CourseCounters& counters;
  };

  explicit CountedCourseRunner(const Ports& ports);
  ~CountedCourseRunner() override;

  // As that of the other one.
  absl::Status Start(TaskSpec spec, TaskObserver& observer) override;
  void Cancel(const TaskKey& key, absl::Status why) override {
    ports_.on_gpus.Cancel(key, std::move(why));
  }
  void Refuse(const TaskKey& key) override { ports_.on_gpus.Refuse(key); }
  void RaiseEpoch(uint64_t epoch) override { ports_.on_gpus.RaiseEpoch(epoch); }
  void PeerLost(const TaskKey& key, absl::string_view worker, absl::Status why) override {
    ports_.on_gpus.PeerLost(key, worker, std::move(why));
  }
  std::optional<int64_t> MovedBytes(const TaskKey& key) const override {
    return ports_.on_gpus.MovedBytes(key);
  }
  const CourseCounters& counters() const { return ports_.counters; }

 private:
  const Ports ports_;
  std::map<TaskKey, std::unique_ptr<CountedCourse>> tasks_;
};

}  // namespace crossmesh
