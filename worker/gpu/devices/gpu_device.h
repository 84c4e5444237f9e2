#pragma once

#include "common/base/clock.h"
#include "common/base/digest.h"
#include "common/base/unique_fd.h"
#include "common/communicators/communicator_key.h"
#include "common/event_loop/event_loop.h"
#include "common/mesh/device.h"
#include "common/plan/worker_part.h"
#include "worker/executor/task.h"
#include "worker/gpu/devices/storage_arenas.h"
#include "worker/gpu/process/gpu_process.h"
#include "worker/gpu/protocol/gpu_notice.h"
#include "worker/gpu/protocol/gpu_request.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// A GPU as a device of its worker: its process, the memory of its storages, and what the process
// has by now. Confined to the loop, apart from construction and destruction, and from what others
// say of themselves; destroyed when the loop has stopped.
class GpuDevice final : private GpuProcessObserver {
 public:
  enum class State : uint8_t { kStarting, kUp, kDown, kGivenUp };
  using Done = GpuProcess::Done;

  // Told on the loop, never from inside a call.
  class Listener {
   public:
    virtual ~Listener() = default;
    // It is up, down or given up.
    virtual void OnGpuChange(const GpuDevice& gpu) = 0;
  };

  // Parts that the process is taken to have; it keeps more.
  static constexpr size_t kPartsMax = 32;

  struct Options {
    DeviceId device;
    GpuProcessOptions process;
  };

  // All references must outlive it.
  GpuDevice(EventLoop& loop, const Clock& clock, Options options, Listener& listener);

  const DeviceId& device() const { return device_; }
  const std::string& gpu() const { return gpu_; }  // UUID
  State state() const { return state_; }
  // Why it is not up.
  const absl::Status& cause() const { return cause_; }
  // What the process told when it began. The GPU must be up.
  const PreflightReport& preflight() const { return *preflight_; }
  // Without an incarnation while it is not up.
  RankName rank() const;
  StorageArenas& arenas() { return arenas_; }

  // Once.
  void Start() { process_.Start(); }
  void Stop();
  // In the place of Start: there is no use in it, because of `why`.
  void GiveUp(const absl::Status& why);

  // As GpuProcess::Call.
  void Call(GpuRequest::Body body, Done done) { process_.Call(std::move(body), std::move(done)); }
  void Call(GpuRequest::Body body, UniqueFd descriptor, Done done) {
    process_.Call(std::move(body), std::move(descriptor), std::move(done));
  }
  // Sends the part unless the process has it.
  void Prepare(const WorkerPart& part, absl::AnyInvocable<void(absl::Status)> done);
  // The part was prepared. `done`: the process's report, or why there is none.
  void Run(GpuRequest::RunTask task, absl::AnyInvocable<void(absl::StatusOr<TaskReport>)> done);
  // So far, by a task that runs here.
  std::optional<int64_t> MovedBytes(const TaskKey& key) const;

  // The process's number, for tests and logs; -1 without one.
  int pid() const { return process_.pid(); }

 private:
  // GpuProcessObserver
  void OnUp(const PreflightReport& preflight) override;
  void OnDown(const absl::Status& why) override;
  void OnGivenUp(const absl::Status& why) override;
  void OnTaskProgress(const GpuNotice::TaskProgress& progress) override;
  // Tasks that use it end by themselves; others find it gone.
  void OnCommunicatorLost(const GpuNotice::CommunicatorLost& lost) override;

  void ChangeTo(State state, const absl::Status& cause);
  absl::Status NotUp() const;
  bool HasPart(const Digest& digest);

  const DeviceId device_;
  const std::string gpu_;
  Listener& listener_;
  State state_ = State::kStarting;
  absl::Status cause_;
  std::optional<PreflightReport> preflight_;
  std::vector<Digest> parts_;  // used last: in front
  std::map<TaskKey, int64_t> moved_bytes_;
  GpuProcess process_;
  StorageArenas arenas_;
};

}  // namespace crossmesh
