#pragma once

#include "common/base/byte_count.h"
#include "common/base/check.h"
#include "common/mesh/device.h"
#include "common/plan/plan.h"
#include "worker/courses/course_counters.h"
#include "worker/courses/course_task_runner.h"
#include "worker/executor/executor.h"
#include "worker/executor/task.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/gpu/devices/testing/stand_in_gpus.h"
#include "worker/gpu/tasks/bridged_task_runner.h"
#include "worker/memory/arena.h"
#include "worker/transport/testing/inprocess_fabric.h"
#include "worker/transport/transport.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// What a task tells.
class TaskReports final : public TaskObserver {
 public:
  void OnDeviceDone(const TaskKey& /*key*/, const DeviceReport& report) override {
    CHECK(!task.has_value()) << "a device after its task";
    devices.push_back(report);
  }
  void OnTaskDone(const TaskReport& report) override { task = report; }

  std::vector<DeviceReport> devices;
  std::optional<TaskReport> task;
};

// Two workers on one loop that a test runs: the first, "w0", has GPUs of the stand-in, and host
// memory; the second, "w1", host memory alone. Confined to the test's thread.
class BridgedWorkers {
 public:
  static constexpr int64_t kBounceBytesMax = int64_t{32} << 20;

  // Of the GPUs.
  explicit BridgedWorkers(const std::vector<std::string>& devices = {"a.0", "b.0"});
  ~BridgedWorkers();
  BridgedWorkers(const BridgedWorkers&) = delete;
  BridgedWorkers& operator=(const BridgedWorkers&) = delete;

  // As StandInGpus::Open, whose options may be changed before.
  absl::Status Open();

  StandInGpus& gpus() { return gpus_; }
  InProcessFabric& fabric() { return fabric_; }
  BridgedTaskRunner& bridge() { return *bridge_; }
  // Of a worker; that of the first is the bridge.
  TaskRunner& runner(int32_t worker);
  const std::string& address(int32_t worker) const { return workers_[worker].transport->address(); }
  CourseCounters& courses(int32_t worker) { return workers_[worker].courses; }

 private:
  struct Worker {
    std::unique_ptr<Transport> transport;
    std::unique_ptr<Executor> executor;
    CourseCounters courses;
    std::unique_ptr<CourseTaskRunner> runner;  // destroyed first
  };

  absl::StatusOr<std::shared_ptr<Arena>> MakeArrays(int32_t worker, const DeviceId& device,
                                                    ByteCount bytes);

  StandInGpus gpus_;
  InProcessFabric fabric_;
  std::unique_ptr<BridgedTaskRunner> bridge_;  // has memory that executors use
  std::array<Worker, 2> workers_;
};

// The tiles of a plan whose devices are dealt to the two workers, those that are GPUs in memory of
// these: all source tiles of one in an arena, all destination tiles in another, but for what is
// received in place. Between tiles are guard bytes.
class MixedMemory {
 public:
  // `worker_of_device` by rank; GPUs are the first worker's. `fill` may write sources that are not
  // those of TileMemory, in host memory. References must outlive it.
  static absl::StatusOr<std::unique_ptr<MixedMemory>> Create(
      const Plan& plan, std::vector<int32_t> worker_of_device, BridgedWorkers& workers,
      absl::FunctionRef<void(const TileMemory&)> fill = [](const TileMemory&) {});

  // What the worker has to do of the plan.
  TaskSpec SpecOf(int32_t worker, const TaskKey& key) const;
  // DataLoss when a destination element of the device is not right.
  absl::Status CheckDestination(DeviceRank device);
  // DataLoss when anything that is no destination has changed.
  absl::Status CheckUntouched();
  // All of it as it is now, in host memory. DataLoss when bytes beside tiles have changed.
  absl::StatusOr<const TileMemory*> InHostMemory();

 private:
  // A tile in memory of a GPU, and its host_tile in host memory.
  struct PlacedTile {
    std::byte* host_tile = nullptr;
    int64_t offset = 0;
    int64_t bytes = 0;
  };
  struct GpuArena {
    std::shared_ptr<Arena> arena;
    std::vector<PlacedTile> tiles;
  };

  MixedMemory(const Plan& plan, std::vector<int32_t> worker_of_device, BridgedWorkers& workers)
      : plan_(plan),
        worker_of_device_(std::move(worker_of_device)),
        workers_(workers),
        host_(plan) {}

  absl::Status MoveToGpu(DeviceRank device);
  absl::StatusOr<BoundTiles> PlaceTiles(Side side, DeviceRank device);
  // A destination tile that is the source tile.
  bool IsInPlace(Side side, DeviceRank device, size_t tensor) const;
  int64_t TileBytes(Side side, DeviceRank device, size_t tensor) const;
  // The tiles of GPUs, as they are now, to their host_tiles. DataLoss when guard bytes have
  // changed.
  absl::Status Fetch();

  const Plan& plan_;
  const std::vector<int32_t> worker_of_device_;
  BridgedWorkers& workers_;
  TileMemory host_;
  std::vector<GpuArena> arenas_;
  std::map<DeviceRank, BoundTiles> sources_;  // of GPUs
  std::map<DeviceRank, BoundTiles> destinations_;
};

}  // namespace crossmesh
