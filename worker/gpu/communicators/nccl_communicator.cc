#include "worker/gpu/communicators/nccl_communicator.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "worker/gpu/communicators/collective_call.h"
#include "worker/gpu/communicators/communicator_checks.h"
#include "worker/gpu/communicators/m2n_runtime.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// The most thread blocks that NCCL gives a communicator, unless it is told of fewer.
constexpr int kNcclCtasMax = 64;

void* Pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

ncclConfig_t ConfigOf(const NcclCommunicator::Options& options) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  // So that no call waits for other ranks on the loop; each is asked for by Poll instead.
  config.blocking = 0;
  config.splitShare = 0;
  // NCCL keeps the pointer, not the text; the options live as long as the communicator.
  config.commName = options.name.c_str();
  if (options.ctas.min > 0) {
    config.minCTAs = options.ctas.min;
    // A least number without a largest one is refused: NCCL compares it with what was not set.
    config.maxCTAs = std::max(options.ctas.min, kNcclCtasMax);
  }
  if (options.ctas.max > 0) config.maxCTAs = options.ctas.max;
  return config;
}

}  // namespace

absl::StatusOr<std::string> MintId(const NcclApi& nccl) {
  ncclUniqueId id = {};
  RETURN_IF_ERROR(nccl.Check(nccl.ncclGetUniqueId(&id), "ncclGetUniqueId"));
  return std::string(id.internal, sizeof(id.internal));
}

absl::Status DestroyAll(const NcclApi& nccl, const NcclHandles& handles) {
  absl::Status status;
  for (const ncclComm_t part : handles.parts) {
    status.Update(nccl.Check(nccl.ncclCommDestroy(part), "ncclCommDestroy"));
  }
  if (handles.whole == nullptr) return status;
  status.Update(nccl.Check(nccl.ncclCommDestroy(handles.whole), "ncclCommDestroy"));
  return status;
}

absl::Status AbortAll(const NcclApi& nccl, const NcclHandles& handles) {
  absl::Status status;
  for (const ncclComm_t part : handles.parts) {
    status.Update(nccl.Check(nccl.ncclCommAbort(part), "ncclCommAbort"));
  }
  status.Update(nccl.Check(nccl.ncclCommAbort(handles.whole), "ncclCommAbort"));
  // The abort of the whole has waited for a split that was under way.
  if (handles.unfinished != nullptr && *handles.unfinished != nullptr) {
    status.Update(nccl.Check(nccl.ncclCommAbort(*handles.unfinished), "ncclCommAbort"));
  }
  return status;
}

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Begin(const NcclApi& nccl,
                                                                          Options options) {
  auto communicator = absl::WrapUnique(new NcclCommunicator(nccl, std::move(options)));
  const Options& kept = communicator->options_;
  ncclUniqueId id = {};
  if (kept.id.size() != sizeof(id.internal) || kept.rank < 0 || kept.rank >= kept.size) {
    return communicator->About(absl::InvalidArgumentError(
        absl::StrCat("rank ", kept.rank, " of ", kept.size, " with an id of ", kept.id.size(),
                     " bytes, expected ", sizeof(id.internal))));
  }
  std::memcpy(id.internal, kept.id.data(), sizeof(id.internal));
  ncclConfig_t config = ConfigOf(kept);
  RETURN_IF_ERROR(communicator->Begun(
      nccl.ncclCommInitRankConfig(&communicator->handle_, kept.size, id, kept.rank, &config),
      "ncclCommInitRankConfig"));
  return communicator;
}

NcclCommunicator::~NcclCommunicator() {
  // Not destroyed: that would wait for peers which may never come.
  if (handle_ != nullptr) AbortAll(nccl_, Release()).IgnoreError();
}

std::optional<int64_t> NcclCommunicator::MemoryBytes() const {
  if (nccl_.ncclCommMemStats == nullptr || !CheckIdle("ncclCommMemStats").ok()) return std::nullopt;
  int64_t all_bytes = 0;
  const auto count = [&](ncclComm_t handle) {
    uint64_t bytes = 0;
    const ncclResult_t result = nccl_.ncclCommMemStats(handle, ncclStatGpuMemTotal, &bytes);
    all_bytes += static_cast<int64_t>(bytes);
    // Refused, or 0, where the environment has turned off what counts.
    return result == ncclSuccess && bytes > 0;
  };
  if (!count(handle_)) return std::nullopt;
  for (const auto& split : splits_.all()) {
    if (split->handle != nullptr) count(split->handle);
  }
  return all_bytes;
}

NcclHandles NcclCommunicator::Release() {
  if (options_.m2n != nullptr) options_.m2n->Abandon(handle_);
  NcclHandles handles{.parts = TakeRetired()};
  for (const auto& split : splits_.all()) {
    // Of one that is being split NCCL may write the handle at any time.
    const bool is_unfinished = is_splitting_ && split == splits_.all().back();
    if (is_unfinished) {
      handles.unfinished = &split->handle;
    } else if (split->handle != nullptr) {
      handles.parts.push_back(split->handle);
    }
  }
  handles.whole = std::exchange(handle_, nullptr);
  return handles;
}

absl::Status NcclCommunicator::About(const absl::Status& status) const {
  return At(
      absl::StrCat("communicator ", options_.name, ", rank ", options_.rank, " of ", options_.size),
      status);
}

absl::Status NcclCommunicator::CheckIdle(absl::string_view call) const {
  RETURN_IF_ERROR(failure_);
  if (handle_ == nullptr) {
    return About(absl::FailedPreconditionError(absl::StrCat(call, " after it was ended")));
  }
  if (call_in_progress_.empty()) return absl::OkStatus();
  return About(absl::FailedPreconditionError(absl::StrCat(
      call, " while ", call_in_progress_, " is in progress: Poll has not told of its end")));
}

absl::Status NcclCommunicator::CheckStream(CUstream stream) const {
  if (stream != nullptr) return absl::OkStatus();
  return About(absl::InvalidArgumentError("no stream; the default stream waits for all others"));
}

absl::Status NcclCommunicator::Keep(ncclResult_t result, absl::string_view call) {
  if (const absl::Status status = nccl_.Check(result, call); !status.ok()) {
    failure_ = About(status);
  }
  return failure_;
}

absl::Status NcclCommunicator::Begun(ncclResult_t result, absl::string_view call) {
  // Even when NCCL answers with success: only Poll says that the work is on the stream.
  call_in_progress_ = call;
  return Keep(result, call);
}

absl::Status NcclCommunicator::Exchange(std::span<const RankMessage> sends,
                                        std::span<const RankMessage> receives, CUstream stream) {
  RETURN_IF_ERROR(CheckIdle("Exchange"));
  RETURN_IF_ERROR(CheckStream(stream));
  if (const absl::Status checked = CheckMessages(sends, receives, size()); !checked.ok()) {
    return About(checked);
  }
  RETURN_IF_ERROR(Begun(nccl_.ncclGroupStart(), "ncclGroupStart"));
  // The first call that is refused is the result of the group, which has to be ended all the same:
  // a group left open would take in all that this thread calls next.
  for (const RankMessage& send : sends) {
    nccl_.ncclSend(Pointer(send.address), send.bytes, ncclUint8, send.peer, handle_, stream);
  }
  for (const RankMessage& receive : receives) {
    nccl_.ncclRecv(Pointer(receive.address), receive.bytes, ncclUint8, receive.peer, handle_,
                   stream);
  }
  return Begun(nccl_.ncclGroupEnd(), "ncclGroupEnd");
}

absl::Status NcclCommunicator::PerformAll(std::span<const Collective> collectives,
                                          CUstream stream) {
  RETURN_IF_ERROR(CheckIdle("PerformAll"));
  RETURN_IF_ERROR(CheckStream(stream));
  for (const Collective& collective : collectives) {
    const absl::Status checked = CheckCollective(collective, rank(), size());
    if (!checked.ok()) return About(checked);
  }
  return CallAll(collectives, handle_, stream);
}

absl::Status NcclCommunicator::CallAll(std::span<const Collective> collectives, ncclComm_t handle,
                                       CUstream stream) {
  // Without a group its errors bear the name of the call.
  if (collectives.size() == 1) {
    return Begun(CallCollective(nccl_, collectives[0], handle, stream),
                 NameOfCall(collectives[0].kind));
  }
  RETURN_IF_ERROR(Begun(nccl_.ncclGroupStart(), "ncclGroupStart"));
  // As in Exchange.
  for (const Collective& collective : collectives) {
    CallCollective(nccl_, collective, handle, stream);
  }
  return Begun(nccl_.ncclGroupEnd(), "ncclGroupEnd");
}

absl::Status NcclCommunicator::Split(const RankGroups& groups) {
  RETURN_IF_ERROR(CheckIdle("Split"));
  if (const absl::Status checked = CheckGroups(groups, size()); !checked.ok()) {
    return About(checked);
  }
  if (splits_.Use(groups)) return absl::OkStatus();
  if (splits_.is_full()) {
    // All ranks of the oldest part are here as well, with nothing under way.
    if (const ncclComm_t oldest = splits_.oldest().handle; oldest != nullptr) {
      next_split_ = groups;
      return Begun(nccl_.ncclCommFinalize(oldest), "ncclCommFinalize");
    }
    splits_.RemoveOldest();
  }
  return BeginSplit(groups);
}

absl::Status NcclCommunicator::BeginSplit(RankGroups groups) {
  RankSplit& split = splits_.Add(std::move(groups), rank(), options_.name);
  ncclConfig_t config = ConfigOf(options_);
  config.commName = split.name.c_str();
  is_splitting_ = true;
  return Begun(nccl_.ncclCommSplit(handle_, split.color, split.rank, &split.handle, &config),
               "ncclCommSplit");
}

absl::Status NcclCommunicator::PerformAllIn(const RankGroups& groups,
                                            std::span<const Collective> collectives,
                                            CUstream stream) {
  RETURN_IF_ERROR(CheckIdle("PerformAllIn"));
  RETURN_IF_ERROR(CheckStream(stream));
  const RankSplit* const split = splits_.Find(groups);
  if (split == nullptr || split->handle == nullptr) {
    return About(absl::FailedPreconditionError(
        absl::StrCat("PerformAllIn ", groups.size(), " groups: expected the rank in one that was ",
                     "split, found ", split == nullptr ? "no such split" : "it in none")));
  }
  for (const Collective& collective : collectives) {
    const absl::Status checked = CheckCollective(collective, split->rank, split->size);
    if (!checked.ok()) return About(checked);
  }
  return CallAll(collectives, split->handle, stream);
}

absl::Status NcclCommunicator::Reshard(std::span<const M2nTensor> tensors, CUstream stream) {
  RETURN_IF_ERROR(CheckIdle("Reshard"));
  RETURN_IF_ERROR(CheckStream(stream));
  if (options_.m2n == nullptr) {
    return About(absl::FailedPreconditionError("made without NCCL M2N"));
  }
  const absl::Status begun =
      options_.m2n->BeginReshard(handle_, {tensors.begin(), tensors.end()}, stream);
  if (!begun.ok()) return About(begun);
  is_in_m2n_ = true;
  call_in_progress_ = "ncclReshard";
  return absl::OkStatus();
}

absl::StatusOr<Communicator::Progress> NcclCommunicator::Poll() {
  RETURN_IF_ERROR(failure_);
  if (handle_ == nullptr) {
    return About(absl::FailedPreconditionError("Poll after it was ended"));
  }
  if (is_in_m2n_) return PollInM2n();
  ASSIGN_OR_RETURN(const Progress progress, PollOne(handle_, ""));
  // Before that it may be in the middle of a split.
  if (progress == Progress::kInProgress) return progress;
  is_splitting_ = false;
  for (const auto& split : splits_.all()) {
    if (split->handle == nullptr) continue;
    ASSIGN_OR_RETURN(const Progress of_part, PollOne(split->handle, split->name));
    if (of_part == Progress::kInProgress) return of_part;
  }
  call_in_progress_ = {};
  if (!next_split_.has_value()) return Progress::kIdle;
  retired_.push_back(splits_.RemoveOldest());
  RETURN_IF_ERROR(BeginSplit(*std::exchange(next_split_, std::nullopt)));
  return Progress::kInProgress;
}

absl::StatusOr<Communicator::Progress> NcclCommunicator::PollOne(ncclComm_t handle,
                                                                 absl::string_view part) {
  ncclResult_t state = ncclSuccess;
  RETURN_IF_ERROR(Keep(nccl_.ncclCommGetAsyncError(handle, &state), "ncclCommGetAsyncError"));
  if (state == ncclInProgress) return Progress::kInProgress;
  // Of an idle communicator as well: that a peer has failed is told nowhere else.
  absl::string_view call = call_in_progress_;
  if (call.empty()) call = part.empty() ? "state" : part;
  RETURN_IF_ERROR(Keep(state, call));
  return Progress::kIdle;
}

absl::StatusOr<Communicator::Progress> NcclCommunicator::PollInM2n() {
  // Nothing of NCCL meanwhile: the other thread waits for the communicator by the same call.
  const std::optional<absl::Status> result = options_.m2n->Poll();
  if (!result.has_value()) return Progress::kInProgress;
  is_in_m2n_ = false;
  call_in_progress_ = {};
  if (!result->ok()) {
    failure_ = About(*result);
    return failure_;
  }
  if (!is_finalizing_) return Progress::kIdle;
  RETURN_IF_ERROR(FinalizeAll());
  return Progress::kInProgress;
}

void NcclCommunicator::PollM2n() {
  if (is_in_m2n_ && options_.m2n->Poll().has_value()) is_in_m2n_ = false;
}

absl::Status NcclCommunicator::Register(CUdeviceptr address, int64_t bytes) {
  RETURN_IF_ERROR(CheckIdle("Register"));
  void* registration = nullptr;
  RETURN_IF_ERROR(Keep(nccl_.ncclCommRegister(handle_, Pointer(address), bytes, &registration),
                       "ncclCommRegister"));
  registrations_.push_back(registration);
  return absl::OkStatus();
}

absl::Status NcclCommunicator::Deregister() {
  RETURN_IF_ERROR(CheckIdle("Deregister"));
  for (void* registration : std::exchange(registrations_, {})) {
    RETURN_IF_ERROR(Keep(nccl_.ncclCommDeregister(handle_, registration), "ncclCommDeregister"));
  }
  return absl::OkStatus();
}

absl::Status NcclCommunicator::Finalize() {
  RETURN_IF_ERROR(CheckIdle("Finalize"));
  if (options_.m2n != nullptr && options_.m2n->keeps(handle_)) {
    if (const absl::Status begun = options_.m2n->BeginRelease(handle_); !begun.ok()) {
      return About(begun);
    }
    is_in_m2n_ = is_finalizing_ = true;
    call_in_progress_ = "ncclM2nFinalize";
    return absl::OkStatus();
  }
  return FinalizeAll();
}

absl::Status NcclCommunicator::FinalizeAll() {
  for (const auto& split : splits_.all()) {
    if (split->handle == nullptr) continue;
    RETURN_IF_ERROR(Begun(nccl_.ncclCommFinalize(split->handle), "ncclCommFinalize"));
  }
  return Begun(nccl_.ncclCommFinalize(handle_), "ncclCommFinalize");
}

absl::Status NcclCommunicator::Revoke() {
  RETURN_IF_ERROR(CheckIdle("Revoke"));
  if (options_.m2n != nullptr && options_.m2n->keeps(handle_)) {
    return About(absl::FailedPreconditionError(
        "NCCL M2N keeps memory that is registered with it, which goes with an abort alone"));
  }
  for (const auto& split : splits_.all()) {
    if (split->handle == nullptr) continue;
    RETURN_IF_ERROR(
        Begun(nccl_.ncclCommRevoke(split->handle, NCCL_REVOKE_DEFAULT), "ncclCommRevoke"));
  }
  return Begun(nccl_.ncclCommRevoke(handle_, NCCL_REVOKE_DEFAULT), "ncclCommRevoke");
}

}  // namespace crossmesh
