#pragma once

#include "common/event_loop/event_loop.h"
#include "worker/executor/task_runner.h"
#include "worker/gpu/devices/gpu_devices.h"
#include "worker/gpu/tasks/device_parts.h"
#include "worker/gpu/tasks/gpu_task.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Runs parts whose devices, as far as they move bytes, are GPUs of this worker: cut by device, each
// in the process of its GPU, over a communicator that the controller has had made. A lost peer ends
// the whole task, since the communicator goes with it. A process that is lost ends its devices by
// its cause, and the others' share of the task with them. Confined to the loop; destroyed when that
// has stopped.
class GpuTaskRunner final : public TaskRunner {
 public:
  // `gpus`, which the loop drives, and the loop must outlive it.
  GpuTaskRunner(EventLoop& loop, GpuDevices& gpus) : loop_(loop), gpus_(gpus) {}

  // InvalidArgument, too, for a device that has something to do and is no GPU of this worker, or
  // has no rank in the communicator. What a process refuses, or lacks, the report tells.
  absl::Status Start(TaskSpec spec, TaskObserver& observer) override;
  void Cancel(const TaskKey& key, absl::Status why) override;
  // Nothing waits here for tasks that do not run.
  void Refuse(const TaskKey& /*key*/) override {}
  void RaiseEpoch(uint64_t /*epoch*/) override {}
  void PeerLost(const TaskKey& key, absl::string_view worker, absl::Status why) override;
  std::optional<int64_t> MovedBytes(const TaskKey& key) const override;

 private:
  absl::StatusOr<std::vector<std::unique_ptr<DeviceTask>>> MakeDeviceTasks(const TaskSpec& spec);
  GpuTask* Find(const TaskKey& key) const;

  EventLoop& loop_;
  GpuDevices& gpus_;
  DeviceParts parts_;
  std::map<TaskKey, std::unique_ptr<GpuTask>> tasks_;
};

}  // namespace crossmesh
