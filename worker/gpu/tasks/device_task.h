#pragma once

#include "common/plan/worker_part.h"
#include "crossmesh/v1/gpu_process.pb.h"
#include "worker/executor/task.h"
#include "worker/gpu/devices/gpu_device.h"
#include "worker/gpu/protocol/tile_place.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// What one GPU has to do of a task. Confined to the loop; destroyed when it is over.
//
//   WAITING --all memory is made--> PREPARING --the process has the part--> RUNNING --> OVER
//   any --an error, a cancel before it runs--> OVER
class DeviceTask {
 public:
  // The process's report; an error when there is none, since the process is not there or refuses.
  using Done = absl::AnyInvocable<void(absl::StatusOr<TaskReport>)>;

  struct Options {
    std::shared_ptr<const WorkerPart> part;  // of this device alone
    TaskKey key;
    // All but the part and the places of tiles.
    v1::GpuRequest::RunTask task;
    BoundTiles sources;
    BoundTiles destinations;
  };

  // `gpu` must outlive it.
  DeviceTask(GpuDevice& gpu, Options options);
  DeviceTask(const DeviceTask&) = delete;
  DeviceTask& operator=(const DeviceTask&) = delete;

  const GpuDevice& gpu() const { return gpu_; }
  DeviceRank device() const { return options_.part->spec().devices.front(); }
  bool is_over() const { return state_ == State::kOver; }

  // Once. `done` is called once, last of all, from the loop, when nothing of it goes on.
  void Begin(Done done);
  // What is not complete ends with `why`, soon.
  void Cancel(const absl::Status& why);

 private:
  enum class State : uint8_t { kWaiting, kPreparing, kRunning, kOver };
  using Places = std::vector<TilePlace>;

  // Goes on when it can, which is known to be so when memory was made.
  void AwaitMemory();
  // Where all of them lie; nothing while memory is being made, which then calls AwaitMemory.
  absl::StatusOr<std::optional<Places>> Locate(const BoundTiles& tiles);
  void Prepare();
  void Run();
  void End(absl::StatusOr<TaskReport> report);

  GpuDevice& gpu_;
  Options options_;
  State state_ = State::kWaiting;
  absl::Status cancelled_;  // OK: it was not
  Done done_;
};

}  // namespace crossmesh
