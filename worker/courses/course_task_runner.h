#pragma once

#include "common/base/byte_count.h"
#include "worker/courses/course_counters.h"
#include "worker/courses/tile_release.h"
#include "worker/executor/host_task_runner.h"
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

class CourseTask;
class EventLoop;
class ReplayRunner;
struct DeviceId;

// Runs parts with courses in host memory, step by step, and leaves all others to another runner.
// Confined to the loop; destroyed when that has stopped.
class CourseTaskRunner final : public HostTaskRunner {
 public:
  // All must outlive it.
  struct Ports {
    EventLoop& loop;
    ReplayRunner& replays;
    HostTaskRunner& others;
    CourseCounters& counters;
    // Memory of the host for what a device of this worker has between steps.
    std::function<absl::StatusOr<std::shared_ptr<Arena>>(const DeviceId&, ByteCount)> make_memory;
    ReleaseMemory release = ReleasePages;
  };

  explicit CourseTaskRunner(Ports ports);
  ~CourseTaskRunner() override;

  // As ReplayRunner::StartReplays; ResourceExhausted without memory for arrays.
  absl::Status Start(TaskSpec spec, TaskObserver& observer) override;
  void Cancel(const TaskKey& key, absl::Status why) override;
  void Refuse(const TaskKey& key) override { ports_.others.Refuse(key); }
  void RaiseEpoch(uint64_t epoch) override { ports_.others.RaiseEpoch(epoch); }
  void PeerLost(const TaskKey& key, absl::string_view worker, absl::Status why) override;
  std::optional<int64_t> MovedBytes(const TaskKey& key) const override;
  void SourceHere(const TaskKey& key, DeviceRank device) override;
  const CourseCounters& counters() const { return ports_.counters; }

 private:
  CourseTask* Find(const TaskKey& key) const;

  const Ports ports_;
  std::map<TaskKey, std::unique_ptr<CourseTask>> tasks_;
};

}  // namespace crossmesh
