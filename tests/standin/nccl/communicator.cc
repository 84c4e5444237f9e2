#include "tests/standin/nccl/communicator.h"

#include "tests/standin/control/stand_in_control.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <stdlib.h>

namespace crossmesh {
namespace {

// The communicator of this process that is being made.
std::atomic<const Communicator*> being_made = nullptr;

bool SeveralRanksPerGpu() {
  const char* text = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return text != nullptr && absl::string_view(text) == "1";
}

}  // namespace

Result Communicator::Init(absl::string_view call, Place place, const Identity& identity) {
  if (const Result begun = BeginMaking(); !begun.ok()) {
    phase_ = Phase::kClosed;
    return begun;
  }
  identity_ = identity;
  if (const Result taken = TakeMemory("a communicator", kBytes); !taken.ok()) {
    Close(call);
    return taken;
  }
  const bool fails = crossmeshStandInFaultDue("init_fails") != 0;
  auto advance = [this, place = std::move(place), fails]() -> std::optional<Result> {
    if (fails) return Failure(ncclSystemError, "injected fault init_fails");
    if (rendezvous_ == nullptr) RETURN_IF_FAILED(Join(place));
    if (!AllJoined() || crossmeshStandInFault("init_never_ends") != 0) return std::nullopt;
    rendezvous_->RemoveName();
    return CompareIdentities();
  };
  return Start({.call = std::string(call), .advance = std::move(advance)});
}

Result Communicator::BeginMaking() {
  const Communicator* none = nullptr;
  if (being_made.compare_exchange_strong(none, this)) return {};
  return Violation(ncclInvalidUsage,
                   "while another communicator of this process is being made; make them one after "
                   "the other");
}

Result Communicator::TakeMemory(absl::string_view what, int64_t bytes) {
  if (crossmeshStandInTakeMemory(device_, bytes) != 0) {
    return Failure(ncclUnhandledCudaError,
                   absl::StrCat("out of memory: ", what, " takes ", bytes, " bytes"));
  }
  taken_bytes_ += bytes;
  return {};
}

Result Communicator::Join(const Place& place) {
  std::string reason;
  std::unique_ptr<Rendezvous> rendezvous =
      Rendezvous::Open(place.rendezvous_name, place.ranks, reason);
  if (rendezvous == nullptr) return Violation(ncclInvalidUsage, reason);
  RendezvousCell& cell = rendezvous->cell(place.rank);
  uint32_t free = RendezvousCell::kFree;
  if (!cell.state.compare_exchange_strong(free, RendezvousCell::kBeingFilled)) {
    return Violation(ncclInvalidUsage, absl::StrCat("rank ", place.rank, " has joined already"));
  }
  cell.version = identity_.version;
  cell.uuid = identity_.uuid;
  SetText(cell.environment, identity_.environment);
  cell.state = RendezvousCell::kJoined;
  rendezvous->RingAllDoorbells();
  rank_ = place.rank;
  sent_.assign(place.ranks, 0);
  received_.assign(place.ranks, 0);
  rendezvous_ = std::move(rendezvous);
  return {};
}

bool Communicator::AllJoined() const {
  for (int rank = 0; rank < rendezvous_->ranks(); ++rank) {
    if (rendezvous_->cell(rank).state != RendezvousCell::kJoined) return false;
  }
  return true;
}

Result Communicator::CompareIdentities() const {
  const RendezvousCell& mine = rendezvous_->cell(rank_);
  for (int rank = 0; rank < rendezvous_->ranks(); ++rank) {
    const RendezvousCell& other = rendezvous_->cell(rank);
    if (other.version != mine.version) {
      return Violation(ncclInvalidUsage,
                       absl::StrCat("rank ", rank_, " has NCCL version ", mine.version, ", rank ",
                                    rank, " has ", other.version));
    }
    if (other.environment != mine.environment) {
      return Violation(ncclInvalidUsage,
                       absl::StrCat("rank ", rank_, " has ", mine.environment.data(), ", rank ",
                                    rank, " has ", other.environment.data()));
    }
    if (rank != rank_ && other.uuid == mine.uuid && !SeveralRanksPerGpu()) {
      return Violation(ncclInvalidUsage,
                       absl::StrCat("duplicate GPU: ranks ", rank_, " and ", rank,
                                    " use the same one, and NCCL_MULTI_RANK_GPU_ENABLE is not 1"));
    }
  }
  return {};
}

Result Communicator::Start(Pending pending) {
  phase_ = Phase::kBusy;
  pending_ = std::move(pending);
  polls_left_ = std::max<int64_t>(crossmeshStandInFault("in_progress_polls"), 1);
  in_progress_until_ = std::chrono::steady_clock::now() + kInProgressLeast;
  return {ncclInProgress};
}

void Communicator::EndPending(const Result& result) {
  const Communicator* me = this;
  being_made.compare_exchange_strong(me, nullptr);
  const Phase next = pending_->next;
  if (pending_->held != nullptr) crossmeshStandInReleaseStream(pending_->held);
  pending_.reset();
  if (part_ != nullptr) {
    part_->Close("a split that came to nothing");
    part_.reset();
  }
  if (result.ok()) {
    phase_ = next;
  } else {
    Fail(result);
  }
}

void Communicator::Fail(const Result& failure) {
  if (pending_.has_value()) EndPending({});
  phase_ = Phase::kFailed;
  failure_ = Failure(failure.code, failure.text);  // a violation is told once
}

Result Communicator::Poll() {
  const bool is_over = phase_ == Phase::kFailed || phase_ == Phase::kRevoked;
  if (!is_over && !stops_ && rendezvous_ != nullptr && rendezvous_->is_broken()) {
    const Result broken = Violation(ncclInvalidUsage, rendezvous_->broken_text());
    Fail(broken);
    return broken;
  }
  if (pending_.has_value()) {
    const bool is_early = std::chrono::steady_clock::now() < in_progress_until_;
    if (polls_left_-- > 0 || is_early) return {ncclInProgress};
    const std::optional<Result> ended = pending_->advance();
    if (!ended.has_value()) return {ncclInProgress};
    EndPending(*ended);
    return *ended;
  }
  if (async_error_.has_value() && phase_ == Phase::kReady) Fail(*async_error_);
  return phase_ == Phase::kFailed ? failure_ : Result{};
}

Result Communicator::CheckOpen() const {
  if (phase_ != Phase::kClosed) return {};
  return Violation(ncclInvalidArgument, absl::StrCat("after ", closed_by_));
}

Result Communicator::Check(Purpose purpose) {
  RETURN_IF_FAILED(CheckOpen());
  if (phase_ == Phase::kBusy) {
    return Violation(ncclInvalidUsage,
                     absl::StrCat("while ", pending_->call,
                                  " is in progress: ncclCommGetAsyncError has not "
                                  "told of its end"));
  }
  if (Result state = Poll();
      !state.ok() && purpose != Purpose::kDeregister && purpose != Purpose::kRevoke) {
    return state;
  }
  if (purpose == Purpose::kDeregister) return {};
  if (phase_ == Phase::kFinal && purpose != Purpose::kDestroy) {
    return Violation(ncclInvalidUsage, "after ncclCommFinalize");
  }
  if (phase_ == Phase::kRevoked && purpose != Purpose::kDestroy) {
    return Violation(ncclInvalidUsage, "after ncclCommRevoke, which leaves destroy and abort");
  }
  if (phase_ == Phase::kReady && purpose == Purpose::kDestroy) {
    return Violation(ncclInvalidUsage, "of a healthy communicator without ncclCommFinalize");
  }
  return {};
}

Result Communicator::Finalize() {
  RETURN_IF_FAILED(Publish("ncclCommFinalize"));
  auto advance = [this]() -> std::optional<Result> {
    if (!AllRan()) return std::nullopt;
    if (rendezvous_->cell(rank_).finalized.exchange(1) == 0) rendezvous_->RingAllDoorbells();
    for (int rank = 0; rank < rendezvous_->ranks(); ++rank) {
      if (rendezvous_->cell(rank).finalized == 0) return std::nullopt;
    }
    return Result{};
  };
  return Start({.call = "ncclCommFinalize", .advance = advance, .next = Phase::kFinal});
}

Result Communicator::Revoke() {
  stops_ = true;
  rendezvous_->RingDoorbell(rank_);
  async_error_.reset();
  auto advance = [this]() -> std::optional<Result> {
    if (!NothingRuns()) return std::nullopt;
    return Result{};
  };
  return Start({.call = "ncclCommRevoke", .advance = advance, .next = Phase::kRevoked});
}

Result Communicator::Destroy() {
  if (!registrations_.empty()) {
    return Violation(ncclInvalidUsage,
                     absl::StrCat("with ", registrations_.size(), " buffers still registered"));
  }
  RETURN_IF_FAILED(CheckParts());
  Close("ncclCommDestroy");
  return {};
}

Result Communicator::Abort() {
  RETURN_IF_FAILED(CheckOpen());
  RETURN_IF_FAILED(CheckParts());
  Close("ncclCommAbort");
  return {};
}

void Communicator::Close(absl::string_view by) {
  stops_ = true;
  if (rendezvous_ != nullptr) rendezvous_->RingDoorbell(rank_);
  {
    MutexLock lock(mutex_);
    while (running_ > 0) changed_.Wait(mutex_);
  }
  if (pending_.has_value()) EndPending({});
  const Communicator* me = this;
  being_made.compare_exchange_strong(me, nullptr);
  for (const auto& [handle, registration] : registrations_) {
    crossmeshStandInRegisterMemory(registration.memory, registration.bytes, -1);
  }
  registrations_.clear();
  crossmeshStandInTakeMemory(device_, -std::exchange(taken_bytes_, 0));
  if (rendezvous_ != nullptr) rendezvous_->RemoveName();
  rendezvous_.reset();
  phase_ = Phase::kClosed;
  closed_by_ = std::string(by);
}

Result Communicator::Register(void* memory, size_t bytes, void*& handle) {
  if (crossmeshStandInMemoryKind(memory, bytes) != kStandInShareableMemory) {
    return Violation(ncclInvalidArgument,
                     "the buffer is not memory of ncclMemAlloc or cuMemCreate with a handle type");
  }
  crossmeshStandInRegisterMemory(memory, bytes, 1);
  handle = reinterpret_cast<void*>(++registration_count_);
  registrations_[handle] = {memory, bytes};
  return {};
}

Result Communicator::Deregister(void* handle) {
  const auto found = registrations_.find(handle);
  if (found == registrations_.end()) {
    return Violation(ncclInvalidArgument, "no such registration of this communicator");
  }
  if (phase_ == Phase::kReady && !AllRan()) {
    return Violation(ncclInvalidUsage, "while operations of the communicator are under way");
  }
  crossmeshStandInRegisterMemory(found->second.memory, found->second.bytes, -1);
  registrations_.erase(found);
  return {};
}

}  // namespace crossmesh
