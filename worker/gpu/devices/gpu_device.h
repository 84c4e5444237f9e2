#pragma once

#include "common/base/clock.h"
#include "common/base/digest.h"
#include "common/communicators/communicator_key.h"
#include "common/event_loop/event_loop.h"
#include "common/mesh/device.h"
#include "crossmesh/v1/gpu_process.pb.h"
#include "worker/executor/task.h"
#include "worker/gpu/devices/storage_arenas.h"
#include "worker/gpu/process/gpu_process.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

class WorkerPart;

// A GPU as a device of its worker: its process, the memory of its storages, and what the process
// is known to have. Confined to the loop but for construction, destruction and what StorageArenas
// allows; destroyed when the loop has stopped.
class GpuDevice {
 public:
  enum class State : uint8_t { kStarting, kUp, kDown, kGivenUp };
  // It is up, down or given up, and was not. Called on the loop, never from inside a call.
  using OnChange = absl::AnyInvocable<void(const GpuDevice& gpu)>;

  // Parts that the process is taken to have; it keeps more.
  static constexpr size_t kPartsMax = 32;

  struct Options {
    DeviceId device;
    GpuProcessOptions process;
  };

  // `loop` and `clock` must outlive it.
  GpuDevice(EventLoop& loop, const Clock& clock, Options options, OnChange on_change);
  GpuDevice(const GpuDevice&) = delete;
  GpuDevice& operator=(const GpuDevice&) = delete;

  const DeviceId& device() const { return device_; }
  const std::string& gpu() const { return gpu_; }  // UUID
  // "device a.0 (GPU-...)", for messages.
  std::string name() const;
  State state() const { return state_; }
  // Why it is not up.
  const absl::Status& cause() const { return cause_; }
  // Without an incarnation while it is not up.
  RankName rank() const;
  StorageArenas& arenas() { return arenas_; }

  // Once.
  void Start() { process_.Start(); }
  // As GpuProcess::StopAll.
  static void StopAll(std::span<GpuDevice* const> gpus);
  // In the place of Start: there is no use in it, because of `why`.
  void GiveUp(const absl::Status& why);

  // For requests of all kinds but those below.
  GpuProcess& process() { return process_; }
  // Sends the part unless the process has it.
  void Prepare(const WorkerPart& part, absl::AnyInvocable<void(absl::Status)> done);
  // The part was prepared. `done`: the process's report, or why there is none.
  void Run(v1::GpuRequest::RunTask task, absl::AnyInvocable<void(absl::StatusOr<TaskReport>)> done);
  // What is not complete of the task's runs and copies ends with `why`, soon; their own answers
  // tell.
  void CancelTask(const TaskKey& key, const absl::Status& why);
  // So far, by a task that runs here.
  std::optional<int64_t> MovedBytes(const TaskKey& key) const;

 private:
  GpuProcess::Handlers ProcessHandlers();
  absl::Status OnNotice(const v1::GpuNotice& notice);
  void ChangeTo(State state, const absl::Status& cause);
  absl::Status NotUp() const;
  bool HasPart(const Digest& digest);

  const DeviceId device_;
  const std::string gpu_;
  OnChange on_change_;
  State state_ = State::kStarting;
  absl::Status cause_;
  uint64_t incarnation_ = 0;   // of the process that is up, or was last
  std::vector<Digest> parts_;  // used last: in front
  std::map<TaskKey, int64_t> moved_bytes_;
  GpuProcess process_;
  StorageArenas arenas_;
};

}  // namespace crossmesh
