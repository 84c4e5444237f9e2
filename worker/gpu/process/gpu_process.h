#pragma once

#include "common/base/backoff.h"
#include "common/base/byte_count.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "common/communicators/preflight_report.h"
#include "common/event_loop/event_loop.h"
#include "crossmesh/v1/gpu_process.pb.h"
#include "worker/gpu/process/gpu_child.h"
#include "worker/gpu/process/gpu_connection.h"
#include "worker/gpu/process/gpu_process_options.h"
#include "worker/gpu/process/kept_arenas.h"
#include "worker/gpu/protocol/tile_place.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

class ChildOutput;
struct LentAllocation;

// Keeps one GPU usable: starts a process for it, replaces a process that is lost, and keeps the
// arenas across processes. Links no CUDA.
//
//   STARTING --hello--> RESTORING --arenas imported, or lost--> UP
//   any of them --lost--> ENDING --it has ended--> PAUSING --backoff--> STARTING
//   STARTING --no process can be started--> PAUSING
//   STARTING --why there will never be a GPU, before the first time UP--> GIVEN_UP
//
// Lost means: it ended, was late, said what it must not, or that it can do nothing more. It is
// killed then, since nothing else ends what hangs in a driver; memory lives on in the descriptors
// that are kept here. What the next process cannot import is lost, and the GPU comes up without it.
// Confined to the loop, apart from construction and destruction.
class GpuProcess {
 public:
  using Reply = GpuConnection::Reply;
  using Done = GpuConnection::Done;
  using Callbacks = GpuConnection::Callbacks;

  // Called on the loop, never from inside a call.
  struct Handlers {
    // The GPU can be used; all arenas that are not lost are there, with their bytes. Each time
    // another process begins.
    absl::AnyInvocable<void(const PreflightReport& preflight)> on_up;
    // The arena is gone with its bytes, because of `why`, as if it were released.
    absl::AnyInvocable<void(ArenaId arena, const absl::Status& why)> on_arena_lost;
    // It cannot be used for now, and is tried again: calls have ended, communicators and parts are
    // gone. Also each time when it does not come up.
    absl::AnyInvocable<void(const absl::Status& why)> on_down;
    // It cannot be used at all, and never was: FailedPrecondition without libraries that are new
    // enough, NotFound without such a GPU or its program, PermissionDenied when the program may not
    // be run.
    absl::AnyInvocable<void(const absl::Status& why)> on_given_up;
  };

  // `loop` and `clock` must outlive it.
  GpuProcess(EventLoop& loop, const Clock& clock, GpuProcessOptions options, Handlers handlers);
  // As Stop.
  ~GpuProcess();
  GpuProcess(const GpuProcess&) = delete;
  GpuProcess& operator=(const GpuProcess&) = delete;

  // Once.
  void Start();
  // Lets the process end, kills it after the limit, and waits for that, within its limit. Calls
  // that are open end without a word. Repeatable.
  void Stop();
  // The same of several, which share the longest of their limits.
  static void StopAll(std::span<GpuProcess* const> processes);

  // Zeros. ResourceExhausted; Unavailable while the GPU is not up.
  void CreateArena(ByteCount bytes, absl::AnyInvocable<void(absl::StatusOr<ArenaId>)> done);
  // Memory of another process, by its descriptor, or by its IPC handle; kept like the process's
  // own, but that what has a handle is lost once its owner is gone. InvalidArgument when it is not
  // so much memory of the GPU; ResourceExhausted; Unavailable while the GPU is not up.
  void ImportArena(ByteCount bytes, LentAllocation memory,
                   absl::AnyInvocable<void(absl::StatusOr<ArenaId>)> done);
  // No task uses it.
  void ReleaseArena(ArenaId arena);
  // For another process, which has the memory with it; as KeptArenas::Export.
  absl::StatusOr<UniqueFd> ExportArena(ArenaId arena) const { return arenas_.Export(arena); }

  // Any request but those for arenas, as GpuConnection::Call; done with Unavailable while the GPU
  // is not up.
  void Call(v1::GpuRequest request, Done done) {
    Call(std::move(request), UniqueFd(), {.done = std::move(done)});
  }
  void Call(v1::GpuRequest request, UniqueFd descriptor, Callbacks callbacks);

  bool is_up() const { return state_ == State::kUp; }
  // As a process has told it; nothing while none did.
  const std::optional<v1::GpuHardware>& hardware() const { return hardware_; }
  // The last lines that it has written to its standard output, where NCCL puts its warnings; none
  // where the environment sends them elsewhere.
  std::string LastOutput() const;
  // The process's number, for tests and logs; -1 without one.
  int pid() const { return child_ == nullptr ? -1 : child_->pid(); }

 private:
  enum class State : uint8_t {
    kNew,
    kStarting,
    kRestoring,
    kUp,
    kEnding,
    kPausing,
    kGivenUp,
    kStopped
  };

  void OnHello(const PreflightReport& preflight);
  void OnCommunicatorLost(const CommunicatorKey& key, const absl::Status& why) const;
  void OnLost(const absl::Status& why);

  void StartProcess();
  void OnNotStarted(const absl::Status& why);
  absl::Status TryStart();
  void Restore(PreflightReport preflight);
  void OnImported(ArenaId arena, const absl::Status& imported);
  void GoUp(const PreflightReport& preflight);
  void OnExit(const std::string& how);
  // What makes it end would end each other process as well.
  bool is_hopeless() const;
  void Replace();
  void OnKillLate();
  void Drop();
  void BeginStop();
  bool AwaitExit(absl::Duration timeout) const;
  void GiveUp(const absl::Status& why);
  // For its answer.
  absl::Duration LimitOf(const v1::GpuRequest& request) const;
  absl::Status NotUp() const;
  void Keep(ArenaId arena, KeptArenas::Kept kept, const absl::Status& made,
            absl::AnyInvocable<void(absl::StatusOr<ArenaId>)> done);

  EventLoop& loop_;
  const Clock& clock_;
  const GpuProcessOptions options_;
  Handlers handlers_;
  State state_ = State::kNew;
  bool was_up_ = false;
  uint64_t incarnation_ = 0;
  absl::Status cause_;  // why it is not up
  Backoff backoff_;
  absl::Duration up_since_;  // on the monotonic clock
  TimerId restart_;
  TimerId kill_late_;  // in kEnding
  std::unique_ptr<ChildOutput> output_;
  std::unique_ptr<GpuChild> child_;
  std::unique_ptr<GpuConnection> connection_;
  uint64_t last_arena_ = 0;
  std::string pci_address_;  // of the GPU
  std::optional<v1::GpuHardware> hardware_;
  KeptArenas arenas_;
};

}  // namespace crossmesh
