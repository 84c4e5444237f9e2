#pragma once

#include "common/base/clock.h"
#include "worker/gpu/communicators/communicator.h"

#include <cstdint>
#include <memory>
#include <optional>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

class DriverApi;
class NcclCommunicator;
class RegisteredStaging;
struct NcclHandles;

// In the order of a life: from kRevoking on the end has begun, from kDestroyed on it has come.
enum class CommunicatorState : uint8_t {
  kCreating,
  kReady,
  kExchanging,  // a call of its user is in progress
  kFinalizing,
  kRevoking,
  kDestroying,
  kAborting,
  kDestroyed,
  kAborted,
  // Its last call failed, or did not return in time: it holds what it has until the process ends.
  kHung,
};
absl::string_view CommunicatorStateName(CommunicatorState state);
// Destroyed, aborted or hung: nothing will change any more.
bool IsOver(CommunicatorState state);

// How long each stage may take.
struct CommunicatorTimeouts {
  absl::Duration creating = absl::Minutes(2);
  absl::Duration exchanging = absl::Seconds(30);  // of a call until it is on the stream
  absl::Duration finalizing = absl::Minutes(1);
  absl::Duration revoking = absl::Seconds(10);
  absl::Duration ending = absl::Seconds(30);  // destroying or aborting
};

// The life of one rank of a communicator, of which it is the only owner. Poll moves it on:
//
//   CREATING --all ranks have come--> READY <--> EXCHANGING
//   READY --Finalize--> FINALIZING --> DESTROYING --> DESTROYED
//   READY --Stop--> REVOKING --> DESTROYING
//   any of the above before DESTROYING --failed, too late, or Stop--> ABORTING --> ABORTED
//   DESTROYING, ABORTING --failed or too late--> HUNG
//
// The call that ends it, one of ncclCommDestroy and ncclCommAbort, is made once, since it takes the
// handle along. What does not return from that cannot be undone within the process. What was split
// from it goes the same ways, before it.
//
// Staging is registered when the communicator becomes ready, and deregistered before its end.
// Confined to the thread that issues all work of the GPU.
class CommunicatorLife {
 public:
  struct Options {
    const DriverApi& driver;
    const RegisteredStaging* staging = nullptr;  // registered with it; null: none
    CommunicatorTimeouts timeouts = {};
  };

  // `communicator` has just begun on this thread. Driver and staging must outlive this.
  CommunicatorLife(const Clock& clock, std::unique_ptr<NcclCommunicator> communicator,
                   const Options& options);
  // One that is not over is aborted, which may block; what hangs is left to the process's end.
  ~CommunicatorLife();
  CommunicatorLife(const CommunicatorLife&) = delete;
  CommunicatorLife& operator=(const CommunicatorLife&) = delete;

  CommunicatorState state() const { return state_; }
  // Why it did not end as it was to; OK for one that did, or that goes on.
  const absl::Status& cause() const { return cause_; }

  // Moves on. Takes a call or two of NCCL, none of which blocks.
  CommunicatorState Poll();

  // For its user; null unless it is ready or exchanging. Invalid once one of the calls of this
  // class has led to another state.
  Communicator* communicator();

  // NcclCommunicator::MemoryBytes of one that can be used.
  std::optional<int64_t> MemoryBytes() const;

  // Begins the orderly end. All that its user put on streams must be done; all ranks must do the
  // same. FailedPrecondition unless it is ready.
  absl::Status Finalize();

  // Begins the end at this rank alone, in any state. Work on streams ends undone, but uses
  // its memory until the stream is past it. Nothing happens when such an end has begun already.
  void Stop(const absl::Status& cause);

 private:
  class LastCall;

  bool is_usable() const {
    return state_ == CommunicatorState::kReady || state_ == CommunicatorState::kExchanging;
  }
  void PollCommunicator();
  void PollLastCall();
  void OnIdle();
  void Enter(CommunicatorState state, absl::Duration timeout);
  bool IsLate() const { return clock_.Monotonic() > deadline_; }
  absl::Status LateError() const;
  void Abort(const absl::Status& cause);
  // Begins to end what was split from it and is not kept; an error of what that came to.
  absl::Status Retire();
  // Makes the last call: that of kDestroying or kAborting.
  void End(CommunicatorState state);
  // After what is being retired.
  std::unique_ptr<LastCall> CallLast(NcclHandles handles, bool destroys);

  const Clock& clock_;
  const Options options_;
  CommunicatorState state_ = CommunicatorState::kCreating;
  absl::Duration deadline_;  // of the state, on the monotonic clock
  absl::Status cause_;
  std::unique_ptr<NcclCommunicator> communicator_;
  std::unique_ptr<LastCall> retiring_;   // of parts of it, while it goes on
  std::unique_ptr<LastCall> last_call_;  // while or after it is destroyed or aborted
};

}  // namespace crossmesh
