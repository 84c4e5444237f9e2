#pragma once

#include "common/base/clock.h"
#include "common/communicators/communicator_key.h"
#include "common/event_loop/event_loop.h"
#include "common/mesh/device.h"
#include "crossmesh/v1/worker_service.pb.h"
#include "worker/executor/task.h"
#include "worker/gpu/devices/storage_arenas.h"
#include "worker/gpu/process/gpu_process.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>

namespace crossmesh {

// A GPU as a device of its worker: its process, and the memory of its storages. Confined to the
// loop but for construction, destruction and what StorageArenas allows; destroyed when the loop has
// stopped.
class GpuDevice {
 public:
  enum class State : uint8_t { kStarting, kUp, kDown, kGivenUp };
  // It is up, down or given up, and was not. Called on the loop, never from inside a call.
  using OnChange = absl::AnyInvocable<void(const GpuDevice& gpu)>;

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
  // Whether the process that is up, or was last, can use NCCL M2N.
  bool has_m2n() const { return has_m2n_; }
  const std::optional<v1::GpuHardware>& hardware() const { return process_.hardware(); }
  StorageArenas& arenas() { return arenas_; }

  // Once.
  void Start() { process_.Start(); }
  // As GpuProcess::StopAll.
  static void StopAll(std::span<GpuDevice* const> gpus);
  // In the place of Start: there is no use in it, because of `why`.
  void GiveUp(const absl::Status& why);

  GpuProcess& process() { return process_; }
  // What is not complete of the task's runs and copies ends with `why`, soon; their own answers
  // tell.
  void CancelTask(const TaskKey& key, const absl::Status& why);

 private:
  GpuProcess::Handlers ProcessHandlers();
  void ChangeTo(State state, const absl::Status& cause);
  absl::Status NotUp() const;

  const DeviceId device_;
  const std::string gpu_;
  OnChange on_change_;
  State state_ = State::kStarting;
  absl::Status cause_;
  uint64_t incarnation_ = 0;  // of the process that is up, or was last
  bool has_m2n_ = false;
  GpuProcess process_;
  StorageArenas arenas_;
};

}  // namespace crossmesh
