#pragma once

#include "common/base/clock.h"
#include "common/event_loop/event_loop.h"
#include "common/plan/plan.h"
#include "tests/standin/rank_processes.h"
#include "tests/standin/stand_in.h"
#include "worker/executor/task.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/gpu/communicators/communicator_life.h"
#include "worker/gpu/communicators/m2n_runtime.h"
#include "worker/gpu/communicators/registered_staging.h"
#include "worker/gpu/compiler/compiled_part.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/executor/gpu_executor.h"
#include "worker/gpu/executor/gpu_legs.h"
#include "worker/gpu/executor/gpu_task.h"
#include "worker/gpu/libraries/driver_api.h"
#include "worker/gpu/libraries/nccl_api.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// The report of a task, once it is there.
class AwaitedReport final : public TaskObserver {
 public:
  void OnDeviceDone(const TaskKey& /*key*/, const DeviceReport& report) override;
  void OnTaskDone(const TaskReport& report) override;

  bool is_there() const { return report_.has_value(); }
  const TaskReport& report() const { return *report_; }
  // Of the task, or else of its device.
  absl::Status status() const;

 private:
  std::vector<DeviceReport> devices_;
  std::optional<TaskReport> report_;
};

// One rank of a test in its process: a GPU, staging, a loop that the test drives, an executor, and
// communicators one after the other, of which it is the owner. Confined to its thread.
class ExecutorRank final : public CommunicatorOwner {
 public:
  struct Options {
    int64_t staging_bytes = int64_t{8} << 20;
    GpuExecutor::Options executor;
    CommunicatorTimeouts timeouts;
  };

  // Over the stand-ins, on a GPU that no other number has. Their kernels take tiles in host memory.
  static absl::StatusOr<std::unique_ptr<ExecutorRank>> Create(int number, const Options& options);
  // Over other libraries, which must outlive the rank, on the GPU of this UUID.
  static absl::StatusOr<std::unique_ptr<ExecutorRank>> CreateOn(const DriverApi& driver,
                                                                const NcclApi& nccl,
                                                                const std::string& gpu,
                                                                const Options& options,
                                                                const M2nApi::Options& m2n = {});

  // A communicator of `size` ranks that is ready; its id is of MintId.
  absl::Status Join(int size, int place, const std::string& id);
  // The same, of all processes of a RunRanks.
  absl::Status JoinAll(int size, int place, Meeting& meeting) {
    return JoinGroups(1, size, place, meeting);
  }
  // The same in so many groups, each with a communicator, to which the processes are dealt out.
  absl::Status JoinGroups(int groups, int size, int number, Meeting& meeting);

  // A task over the communicator, whose ranks are the devices of the plan that are in its group.
  absl::StatusOr<GpuTaskSpec> Spec(std::shared_ptr<const CompiledPart> compiled,
                                   const TileMemory& memory, uint32_t instance = 0);
  // The same with tiles of a GPU.
  absl::StatusOr<GpuTaskSpec> Spec(std::shared_ptr<const CompiledPart> compiled,
                                   const GpuTiles& tiles, uint32_t instance = 0);
  // The same of a part of one device with courses.
  absl::StatusOr<GpuTaskSpec> Spec(std::shared_ptr<const PreparedPart> part, const GpuTiles& tiles,
                                   const CompiledPart::Options& options, uint32_t instance = 0);
  // Drives the loop and the communicator until it is so, with Patience.
  void RunUntil(absl::FunctionRef<bool()> condition,
                std::source_location where = std::source_location::current());
  // Starts the task and waits for its end.
  absl::StatusOr<TaskReport> Run(GpuTaskSpec spec);
  // Begins the orderly end of the communicator, as all ranks must.
  absl::Status Finalize() { return life_->Finalize(); }
  // Until the communicator has come to its end.
  absl::Status AwaitStopped();

  // Ends the communicator, as all ranks must, and gives everything back: over the stand-ins an
  // error if anything was done wrong, or if memory of the GPU is missing.
  absl::Status Close();

  void StopCommunicator(const Communicator& communicator, const absl::Status& why) override;
  // Tells the executor what has become of it.
  void PollCommunicator();

  // Of Create.
  const StandIn& stand_in() const { return *stand_in_; }
  Gpu& gpu() { return *gpu_; }
  GpuExecutor& executor() { return *executor_; }
  Communicator& communicator() { return *communicator_; }
  const M2nRuntime& m2n() const { return *m2n_; }
  int64_t FreeBytes();

 private:
  explicit ExecutorRank(const NcclApi& nccl) : nccl_(nccl) {}

  GpuTaskSpec SpecOf(std::shared_ptr<GpuBinding> binding, uint32_t instance);

  const RealClock clock_{};
  CommunicatorTimeouts timeouts_;
  std::unique_ptr<StandIn> stand_in_;  // null over other libraries
  const NcclApi& nccl_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Gpu> gpu_;
  int64_t free_bytes_at_first_ = 0;
  std::unique_ptr<RegisteredStaging> staging_;
  std::unique_ptr<GpuExecutor> executor_;
  std::unique_ptr<M2nRuntime> m2n_;
  std::unique_ptr<CommunicatorLife> life_;
  Communicator* communicator_ = nullptr;  // the last one, there or not
  int groups_ = 1;
  int group_ = 0;
  CommunicatorState told_ = CommunicatorState::kReady;
};

// Where the tiles of a device are, in host memory.
GpuTiles TilesOf(const TileMemory& memory, DeviceRank device);

}  // namespace crossmesh
