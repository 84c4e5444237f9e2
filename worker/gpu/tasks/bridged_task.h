#pragma once

#include "worker/executor/executor.h"
#include "worker/executor/task.h"
#include "worker/gpu/tasks/device_bridge.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>

namespace crossmesh {

// One task of the executor of host memory in which bounce buffers stand for GPUs. Sources are
// loaded while it runs already, so that peers find the task there and send what they have; a
// destination is stored, and reported, when the executor has it complete. A source that cannot be
// loaded ends the task; one that cannot be stored is that device's failure. Confined to the loop;
// destroyed when it is over.
class BridgedTask final : public TaskObserver {
 public:
  // Both references must outlive it.
  BridgedTask(const TaskKey& key, std::vector<std::unique_ptr<DeviceBridge>> bridges,
              Executor& executor, TaskObserver& observer);
  BridgedTask(const BridgedTask&) = delete;
  BridgedTask& operator=(const BridgedTask&) = delete;

  // Once, when the executor has started the task with this as its observer. `over` is called last
  // of all, when the observer knows; this may not be destroyed there.
  void Begin(absl::AnyInvocable<void()> over);
  // Of what goes on between GPUs and bounce buffers; the executor ends the rest.
  void CancelCopies(const absl::Status& why);
  int64_t moved_bytes() const;

  // Of the executor.
  void OnDeviceDone(const TaskKey& key, const DeviceReport& report) override;
  void OnTaskDone(const TaskReport& report) override;

 private:
  struct Bridged {
    std::unique_ptr<DeviceBridge> bridge;
    bool is_loading = true;
    std::optional<DeviceReport> in_bounce_buffer = std::nullopt;  // complete, and to be stored
  };

  void OnLoaded(Bridged& device, const absl::Status& status);
  void Store(Bridged& device);
  void OnStored(const Bridged& device, const absl::Status& status);
  // With the device's name.
  void Fail(const Bridged& device, const absl::Status& why);
  void Tell(const DeviceReport& report);
  // When nothing goes on any more.
  void EndIfOver();

  const TaskKey key_;
  std::vector<Bridged> devices_;  // never changes but for what is in it
  Executor& executor_;
  TaskObserver& observer_;
  int32_t copies_open_ = 0;           // loads and stores
  absl::Status failure_;              // the first of these
  std::vector<DeviceReport> told_;    // as the observer has heard it
  std::optional<TaskReport> report_;  // of the executor, once it has ended
  absl::AnyInvocable<void()> over_;
};

}  // namespace crossmesh
