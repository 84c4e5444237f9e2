#pragma once

#include "common/base/byte_count.h"
#include "worker/executor/host_task_runner.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

class Arena;
class DeviceBridge;
class EventLoop;
class GpuDevice;
class GpuDevices;

// Runs parts over the transports of host memory. A GPU of this worker that moves bytes is
// represented by a bounce buffer in host memory, which belongs to the task. A part without such a
// GPU goes to the runner of host memory as it is. So does one with courses (worker/courses), in
// bounce buffers from end to end, with what lies between steps in host memory too.
//
// A bounce buffer is as large as the storage. Source tiles are loaded whole, even if only a part of
// them is read. Confined to the loop; destroyed when that has stopped.
class BridgedTaskRunner final : public TaskRunner {
 public:
  // All must outlive it.
  struct Ports {
    EventLoop& loop;
    GpuDevices& gpus;  // which the loop drives
    HostTaskRunner& on_host;
    // Memory of the host, with a descriptor.
    std::function<absl::StatusOr<std::shared_ptr<Arena>>(ByteCount)> make_arena;
  };
  struct Options {
    ByteCount bounce_bytes_max;  // of all tasks together
  };

  BridgedTaskRunner(Ports ports, const Options& options);
  ~BridgedTaskRunner() override;

  // As that of the other runner; ResourceExhausted when bounce buffers would take too much memory;
  // FailedPrecondition when a tile of a GPU is in lent memory.
  absl::Status Start(TaskSpec spec, TaskObserver& observer) override;
  void Cancel(const TaskKey& key, absl::Status why) override;
  void Refuse(const TaskKey& key) override { ports_.on_host.Refuse(key); }
  void RaiseEpoch(uint64_t epoch) override { ports_.on_host.RaiseEpoch(epoch); }
  void PeerLost(const TaskKey& key, absl::string_view worker, absl::Status why) override {
    ports_.on_host.PeerLost(key, worker, std::move(why));
  }
  std::optional<int64_t> MovedBytes(const TaskKey& key) const override;

  // Memory of the host in the place of a GPU's. ResourceExhausted: there would be too much of it.
  absl::StatusOr<std::shared_ptr<Arena>> MakeBounceBuffer(ByteCount bytes);

  int64_t bounce_bytes() const { return *bounce_bytes_; }

 private:
  class Task;

  // Of the devices that move bytes; in `spec` bounce buffers take the place of their tiles.
  absl::StatusOr<std::vector<std::unique_ptr<DeviceBridge>>> BridgeGpus(TaskSpec& spec);
  // Null when it does not.
  absl::StatusOr<std::unique_ptr<DeviceBridge>> Bridge(GpuDevice& gpu, DeviceRank device,
                                                       TaskSpec& spec);

  const Ports ports_;
  const Options options_;
  // Shared with the bounce buffers: a process may still have some when this has gone.
  const std::shared_ptr<int64_t> bounce_bytes_ = std::make_shared<int64_t>(0);
  std::map<TaskKey, std::unique_ptr<Task>> tasks_;
};

}  // namespace crossmesh
