#include "worker/gpu/communicators/communicator_life.h"

#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/thread.h"
#include "worker/gpu/communicators/nccl_communicator.h"
#include "worker/gpu/communicators/registered_staging.h"
#include "worker/gpu/libraries/driver_api.h"

#include <iterator>
#include <optional>
#include <utility>

#include <absl/functional/any_invocable.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::string_view CommunicatorStateName(CommunicatorState state) {
  // In the order of CommunicatorState.
  constexpr absl::string_view kNames[] = {"CREATING", "READY",      "EXCHANGING", "FINALIZING",
                                          "REVOKING", "DESTROYING", "ABORTING",   "DESTROYED",
                                          "ABORTED",  "HUNG"};
  static_assert(std::size(kNames) == static_cast<size_t>(CommunicatorState::kHung) + 1);
  return kNames[static_cast<size_t>(state)];
}

bool IsOver(CommunicatorState state) { return state >= CommunicatorState::kDestroyed; }

// The call that ends a communicator, on a thread of its own, because it may wait for other ranks,
// or for ever, and the event loop may not. Its destructor waits for it. Thread-safe.
class CommunicatorLife::LastCall {
 public:
  explicit LastCall(absl::AnyInvocable<absl::Status() &&> call)
      : thread_("nccl-last-call", [this, call = std::move(call)]() mutable {
          absl::Status result = std::move(call)();
          MutexLock lock(mutex_);
          result_ = std::move(result);
        }) {}
  LastCall(const LastCall&) = delete;
  LastCall& operator=(const LastCall&) = delete;

  // Waits for it.
  absl::Status Await() {
    thread_.Join();
    return *result();
  }
  // What the call came to; nothing while it runs.
  std::optional<absl::Status> result() const {
    MutexLock lock(mutex_);
    return result_;
  }

 private:
  mutable Mutex mutex_;
  std::optional<absl::Status> result_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;  // the last member: it uses the others
};

CommunicatorLife::CommunicatorLife(const Clock& clock,
                                   std::unique_ptr<NcclCommunicator> communicator,
                                   const Options& options)
    : clock_(clock), options_(options), communicator_(std::move(communicator)) {
  Enter(CommunicatorState::kCreating, options_.timeouts.creating);
}

CommunicatorLife::~CommunicatorLife() {
  if (state_ != CommunicatorState::kHung) return;
  // The thread that hangs uses both, and only the end of the process ends it.
  // NOLINTBEGIN(bugprone-unused-return-value)
  static_cast<void>(last_call_.release());
  static_cast<void>(retiring_.release());
  static_cast<void>(communicator_.release());
  // NOLINTEND(bugprone-unused-return-value)
}

CommunicatorState CommunicatorLife::Poll() {
  if (last_call_ == nullptr) {
    PollCommunicator();
  } else if (!IsOver(state_)) {
    PollLastCall();
  }
  return state_;
}

Communicator* CommunicatorLife::communicator() {
  return is_usable() ? communicator_.get() : nullptr;
}

std::optional<int64_t> CommunicatorLife::MemoryBytes() const {
  return is_usable() ? communicator_->MemoryBytes() : std::nullopt;
}

void CommunicatorLife::PollCommunicator() {
  const absl::StatusOr<Communicator::Progress> progress = communicator_->Poll();
  if (!progress.ok()) return Abort(progress.status());
  if (const absl::Status retired = Retire(); !retired.ok()) return Abort(retired);
  if (*progress == Communicator::Progress::kIdle) return OnIdle();
  // The user calls the communicator without a word to this class; that a call has begun shows here.
  if (state_ == CommunicatorState::kReady) {
    Enter(CommunicatorState::kExchanging, options_.timeouts.exchanging);
  }
  if (IsLate()) Abort(LateError());
}

void CommunicatorLife::OnIdle() {
  absl::Status status;
  switch (state_) {
    case CommunicatorState::kCreating:
      // NCCL takes calls from now on; the user's first one is to find the staging registered.
      if (options_.staging != nullptr) {
        status = communicator_->Register(options_.staging->address(), options_.staging->bytes());
      }
      Enter(CommunicatorState::kReady, absl::InfiniteDuration());
      break;
    case CommunicatorState::kExchanging:
      Enter(CommunicatorState::kReady, absl::InfiniteDuration());
      break;
    case CommunicatorState::kRevoking:
      // nccl.h: once it is quiescent a revoked communicator may be destroyed; to finalize it is
      // invalid. Its staging was in use until now.
      status = communicator_->Deregister();
      if (!status.ok()) break;
      [[fallthrough]];
    case CommunicatorState::kFinalizing:
      End(CommunicatorState::kDestroying);
      break;
    case CommunicatorState::kReady:
    case CommunicatorState::kDestroying:
    case CommunicatorState::kAborting:
    case CommunicatorState::kDestroyed:
    case CommunicatorState::kAborted:
    case CommunicatorState::kHung:
      break;
  }
  if (!status.ok()) Abort(status);
}

void CommunicatorLife::PollLastCall() {
  std::optional<absl::Status> result = last_call_->result();
  // Which is what makes a call of M2N that waits for other ranks return.
  communicator_->PollM2n();
  if (communicator_->is_in_m2n()) result = std::nullopt;
  if (!result.has_value() && !IsLate()) return;
  const absl::Status status = result.value_or(LateError());
  if (!status.ok()) {
    // The thread may still be inside NCCL with the handle, so nothing else can be tried.
    cause_.Update(status);
    Enter(CommunicatorState::kHung, absl::InfiniteDuration());
    return;
  }
  Enter(state_ == CommunicatorState::kDestroying ? CommunicatorState::kDestroyed
                                                 : CommunicatorState::kAborted,
        absl::InfiniteDuration());
}

absl::Status CommunicatorLife::Finalize() {
  if (Poll() != CommunicatorState::kReady) {
    return absl::FailedPreconditionError(absl::StrCat("communicator ", communicator_->name(),
                                                      " is finalized while it is ",
                                                      CommunicatorStateName(state_)));
  }
  // NCCL's threads, which deregistering needs, end when it is finalized.
  absl::Status status = communicator_->Deregister();
  if (status.ok()) status = communicator_->Finalize();
  if (status.ok()) {
    Enter(CommunicatorState::kFinalizing, options_.timeouts.finalizing);
  } else {
    Abort(status);
  }
  return status;
}

void CommunicatorLife::Stop(const absl::Status& cause) {
  if (state_ >= CommunicatorState::kRevoking) return;  // the end has begun
  cause_.Update(cause);
  // Revoking is the gentler end, but a call of NCCL as well, for which the communicator must be
  // idle. In the middle of another one there is only the abort.
  if (state_ == CommunicatorState::kReady && communicator_->Revoke().ok()) {
    Enter(CommunicatorState::kRevoking, options_.timeouts.revoking);
  } else {
    Abort(cause);
  }
}

void CommunicatorLife::Enter(CommunicatorState state, absl::Duration timeout) {
  state_ = state;
  deadline_ = clock_.Monotonic() + timeout;
}

absl::Status CommunicatorLife::LateError() const {
  return absl::DeadlineExceededError(absl::StrCat("communicator ", communicator_->name(),
                                                  " is still ", CommunicatorStateName(state_),
                                                  " at its deadline"));
}

void CommunicatorLife::Abort(const absl::Status& cause) {
  cause_.Update(cause);
  End(CommunicatorState::kAborting);
}

// What was split from it and makes room ends by a call that may block as well.
absl::Status CommunicatorLife::Retire() {
  if (retiring_ != nullptr && retiring_->result().has_value()) {
    RETURN_IF_ERROR(*retiring_->result());
    retiring_.reset();
  }
  NcclHandles retired{.parts = communicator_->TakeRetired()};
  if (!retired.parts.empty()) retiring_ = CallLast(std::move(retired), /*destroys=*/true);
  return absl::OkStatus();
}

void CommunicatorLife::End(CommunicatorState state) {
  Enter(state, options_.timeouts.ending);
  // Both calls free what the handles stand for, so these are taken from the communicator first: no
  // other call can be made beside this one or after it.
  last_call_ = CallLast(communicator_->Release(), state == CommunicatorState::kDestroying);
}

std::unique_ptr<CommunicatorLife::LastCall> CommunicatorLife::CallLast(NcclHandles handles,
                                                                       bool destroys) {
  const DriverApi& driver = options_.driver;
  CUcontext context = nullptr;
  const absl::Status found = driver.Check(driver.cuCtxGetCurrent(&context), "cuCtxGetCurrent");
  return std::make_unique<LastCall>([&driver, context, found, &nccl = communicator_->nccl(),
                                     handles = std::move(handles), destroys,
                                     before = std::move(retiring_)]() mutable -> absl::Status {
    absl::Status status = found;
    if (before != nullptr) status.Update(before->Await());
    RETURN_IF_ERROR(status);
    // NCCL leaves a thread with the device that it came with, which makes a context there.
    // Without one that is the first GPU of the machine, whoever uses it.
    RETURN_IF_ERROR(driver.Check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent"));
    return destroys ? DestroyAll(nccl, handles) : AbortAll(nccl, handles);
  });
}

}  // namespace crossmesh
