#pragma once

#include "worker/executor/task.h"
#include "worker/gpu/tasks/device_task.h"

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
  // `spec` has been checked; `devices` are those that have something to do. `observer` must outlive
  // it.
  GpuTask(TaskSpec spec, std::vector<std::unique_ptr<DeviceTask>> devices, TaskObserver& observer);
  GpuTask(const GpuTask&) = delete;
  GpuTask& operator=(const GpuTask&) = delete;

  // Once. `over` is called last of all, when the observer knows; this may not be destroyed there.
  void Begin(absl::AnyInvocable<void()> over);
  // These tell the observer nothing themselves; the ends of the devices' tasks do.
  void Cancel(const absl::Status& why);
  void LosePeer(const std::string& worker, const absl::Status& why);
  int64_t moved_bytes() const;

 private:
  // Destinations that have nothing to receive and nothing to copy.
  void ReportIdleDevices();
  void OnDeviceOver(DeviceTask& device, absl::StatusOr<TaskReport> report);
  // A report of one GPU becomes part of that of the task.
  void Add(const TaskReport& report);
  // What the process would have told, of a GPU without a report.
  TaskReport Failed(const DeviceTask& device, const absl::Status& why) const;
  void CancelDevices(const absl::Status& why);
  void End();
  std::string NameOf(const DeviceTask& device) const;

  const TaskSpec spec_;
  const std::vector<std::unique_ptr<DeviceTask>> devices_;
  TaskObserver& observer_;
  size_t devices_left_;
  int64_t moved_bytes_ = 0;  // of devices that are over
  TaskReport report_;
  absl::AnyInvocable<void()> over_;
};

}  // namespace crossmesh
