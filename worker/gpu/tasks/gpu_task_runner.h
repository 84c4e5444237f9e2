#pragma once

#include "common/base/digest.h"
#include "worker/executor/task_runner.h"

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

class EventLoop;
class GpuDevices;
class WorkerPart;

// Runs parts whose devices, as far as they move bytes, are GPUs of this worker: cut by device, each
// in the process of its GPU, over a communicator that the controller has had made. A lost peer ends
// the whole task, since the communicator goes with it. A process that is lost ends its devices by
// its cause, and the others' share of the task with them. A task without a communicator, and all
// that is said of one, goes to the runner of host memory. Confined to the loop; destroyed when that
// has stopped.
class GpuTaskRunner final : public TaskRunner {
 public:
  // Parts that ran last are kept cut by device.
  static constexpr size_t kPartsMax = 64;

  // `gpus`, which the loop drives, and the others must outlive it.
  GpuTaskRunner(EventLoop& loop, GpuDevices& gpus, TaskRunner& on_host);
  ~GpuTaskRunner() override;

  // InvalidArgument, too, for a device that has something to do and is no GPU of this worker, or
  // has no rank in the communicator. What a process refuses, or lacks, the report tells.
  absl::Status Start(TaskSpec spec, TaskObserver& observer) override;
  void Cancel(const TaskKey& key, absl::Status why) override;
  // Nothing waits here for tasks that do not run.
  void Refuse(const TaskKey& key) override { on_host_.Refuse(key); }
  void RaiseEpoch(uint64_t epoch) override { on_host_.RaiseEpoch(epoch); }
  void PeerLost(const TaskKey& key, absl::string_view worker, absl::Status why) override;
  std::optional<int64_t> MovedBytes(const TaskKey& key) const override;

 private:
  class Task;
  struct Share;
  using Parts = std::vector<std::shared_ptr<const WorkerPart>>;
  struct CutParts {
    Digest digest;  // of the part that was cut
    std::shared_ptr<const Parts> parts;
  };

  // One part of one device for each of the part's devices, in their order. Internal: CutPart
  // refuses it. Cost: linear in the part times its devices, when it did not run lately.
  absl::StatusOr<std::shared_ptr<const Parts>> PartsByDevice(const WorkerPart& part);
  absl::StatusOr<std::vector<std::unique_ptr<Share>>> MakeShares(const TaskSpec& spec);
  Task* Find(const TaskKey& key) const;

  EventLoop& loop_;
  GpuDevices& gpus_;
  TaskRunner& on_host_;
  std::list<CutParts> cut_;  // used last: in front
  std::map<TaskKey, std::unique_ptr<Task>> tasks_;
};

}  // namespace crossmesh
