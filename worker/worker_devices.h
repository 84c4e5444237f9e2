#pragma once

#include "common/base/byte_count.h"
#include "common/mesh/device.h"
#include "crossmesh/v1/worker_service.pb.h"
#include "worker/memory/memory_budget.h"
#include "worker/memory/reused_arenas.h"
#include "worker/memory/storage_table.h"
#include "worker/memory/user_memory.h"

#include <memory>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

class ArenaLender;
class Clock;
class EventLoop;
class FdServer;
class GpuDevices;
class Transport;
class WorkerMetrics;
struct WorkerOptions;

// The devices of a worker and their memory: that of the host, which is lent to the transport, and
// the GPUs, each with its process. Thread-compatible, apart from what makes arenas; destroyed when
// the loops have stopped.
class WorkerDevices {
 public:
  // All outlive it, the transport until StopLending.
  struct Ports {
    EventLoop& data;
    EventLoop& memory;
    Transport& transport;  // driven by the data loop
    const Clock& clock;
    WorkerMetrics& metrics;
  };

  WorkerDevices(const WorkerOptions& options, const Ports& ports);
  ~WorkerDevices();

  // Starts the data loop, and the processes of the GPUs; returns once each is up or given up.
  // InvalidArgument: the memory that is allowed is less than buffers take from the start;
  // FailedPrecondition: no device is left, with the reason; what GpuDevices::Create says.
  absl::Status Open();
  // Serves the storages to user processes, if the options have a socket; as FdServer::Create says.
  absl::Status ServeMemory();
  void StopServingMemory();
  // Posts the end of the GPUs' processes to the data loop, which is to be stopped next.
  void StopGpus();
  // Once the data loop has stopped.
  void StopLending();

  // Those that are there: from Open on.
  const std::vector<DeviceId>& devices() const { return devices_; }
  GpuDevices& gpus() { return *gpus_; }
  bool HasGpu(const DeviceId& device) const;
  StorageTable& storages() { return storages_; }
  MemoryBudget& memory() { return memory_; }

  // What controllers are to know: which process drives which GPU, and how much memory is used.
  void Describe(v1::WorkerSessionRequest::Register& registration) const;
  void Describe(v1::WorkerSessionRequest::Heartbeat& heartbeat) const;

  // Of a device of the host or a GPU. InvalidArgument: the device is not this worker's, or the name
  // none that the API has; ResourceExhausted: as MemoryBudget says; else as Arena::Create and
  // GpuDevices::MakeArena. From Open on thread-safe.
  absl::StatusOr<std::shared_ptr<Arena>> MakeArena(const StorageKey& key, ByteCount bytes);
  // What a device of the host has between the steps of a task, with what the last task has left
  // there. As MakeArena. From Open on thread-safe.
  absl::StatusOr<std::shared_ptr<Arena>> MakeArrays(const DeviceId& device, ByteCount bytes);
  // In host memory, for a task that joins GPUs and the host. As MemoryBudget says. Thread-safe.
  absl::StatusOr<std::shared_ptr<Arena>> MakeBounceBuffer(ByteCount bytes);

 private:
  absl::Status CheckIsOwn(const StorageKey& key) const;
  absl::Status CheckIsGpu(const StorageKey& key) const;
  UserMemory::Maker MakerOfUserMemory();

  const WorkerOptions& options_;
  const Ports ports_;
  std::vector<DeviceId> devices_;
  const std::unique_ptr<ArenaLender> lender_;
  MemoryBudget memory_;
  ReusedArenas kept_arrays_;  // beside the budget while nobody uses them
  StorageTable storages_;
  std::unique_ptr<FdServer> fd_server_;  // null: no memory socket
  std::unique_ptr<GpuDevices> gpus_;
};

}  // namespace crossmesh
