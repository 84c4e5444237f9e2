#pragma once

#include "common/base/byte_count.h"
#include "worker/courses/course_counters.h"
#include "worker/courses/tile_release.h"
#include "worker/executor/task_runner.h"
#include "worker/memory/arena.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

class CountedCourse;
class CourseTask;
class EventLoop;
class ReplayRunner;
struct DeviceId;

// Runs parts with courses in host memory, step by step, and leaves all others to another runner:
// also those on GPUs, which it counts. Confined to the loop; destroyed when that has stopped.
class CourseTaskRunner final : public TaskRunner {
 public:
  // All must outlive it.
  struct Ports {
    EventLoop& loop;
    ReplayRunner& replays;
    TaskRunner& others;
    CourseCounters& counters;
    // Memory of the host for what a device of this worker has between steps.
    std::function<absl::StatusOr<std::shared_ptr<Arena>>(const DeviceId&, ByteCount)> make_memory;
    std::function<bool(const DeviceId&)> is_gpu;
    ReleaseMemory release = ReleasePages;
  };

  explicit CourseTaskRunner(Ports ports);
  ~CourseTaskRunner() override;

  // As ReplayRunner::StartReplays; ResourceExhausted without memory for arrays; Unimplemented for a
  // course on GPUs and host memory.
  absl::Status Start(TaskSpec spec, TaskObserver& observer) override;
  void Cancel(const TaskKey& key, absl::Status why) override;
  void Refuse(const TaskKey& key) override { ports_.others.Refuse(key); }
  void RaiseEpoch(uint64_t epoch) override { ports_.others.RaiseEpoch(epoch); }
  void PeerLost(const TaskKey& key, absl::string_view worker, absl::Status why) override;
  std::optional<int64_t> MovedBytes(const TaskKey& key) const override;
  const CourseCounters& counters() const { return ports_.counters; }

 private:
  absl::StatusOr<bool> IsOnGpus(const TaskSpec& spec) const;
  absl::Status StartOnGpus(TaskSpec spec, TaskObserver& observer);
  CourseTask* Find(const TaskKey& key) const;

  const Ports ports_;
  std::map<TaskKey, std::unique_ptr<CourseTask>> tasks_;
  std::map<TaskKey, std::unique_ptr<CountedCourse>> on_gpus_;
};

}  // namespace crossmesh
