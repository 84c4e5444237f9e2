#pragma once

#include "worker/executor/task.h"
#include "worker/gpu/tasks/device_run.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// One task of a worker on its GPUs: what they do of it, side by side, and what comes of that
// together. A GPU that fails ends what the others do, since a communicator is gone at its rank and
// they would wait for it in vain. Confined to the loop; destroyed when it is over.
class GpuTask {
 public:
  // `spec` has been checked; `runs` are those of devices that have something to do. `observer` must
  // outlive it.
  GpuTask(TaskSpec spec, std::vector<std::unique_ptr<DeviceRun>> runs, TaskObserver& observer);
  GpuTask(const GpuTask&) = delete;
  GpuTask& operator=(const GpuTask&) = delete;

  // Once. `over` is called last of all, when the observer knows; this may not be destroyed there.
  void Begin(absl::AnyInvocable<void()> over);
  // These tell the observer nothing themselves; the ends of what runs do.
  void Cancel(const absl::Status& why);
  void LosePeer(const std::string& worker, const absl::Status& why);
  int64_t moved_bytes() const;

 private:
  // Destinations that have nothing to receive and nothing to copy.
  void ReportIdleDevices();
  void OnRunOver(DeviceRun& run, absl::StatusOr<TaskReport> report);
  // A report of one GPU becomes part of that of the task.
  void Add(const TaskReport& report);
  // What the process would have told, of a GPU without a report.
  TaskReport Failed(const DeviceRun& run, const absl::Status& why) const;
  void CancelRuns(const absl::Status& why);
  void End();
  std::string NameOf(const DeviceRun& run) const;

  const TaskSpec spec_;
  const std::vector<std::unique_ptr<DeviceRun>> runs_;
  TaskObserver& observer_;
  size_t runs_left_;
  int64_t moved_bytes_ = 0;  // of runs that are over
  TaskReport report_;
  absl::AnyInvocable<void()> over_;
};

}  // namespace crossmesh
