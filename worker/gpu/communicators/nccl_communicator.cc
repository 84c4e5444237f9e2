#include "worker/gpu/communicators/nccl_communicator.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
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

// What only moves is moved as bytes, so these are the types that are reduced.
ncclDataType_t TypeOf(DataType type) {
  switch (type) {
    case DataType::kI8:
      return ncclInt8;
    case DataType::kI32:
      return ncclInt32;
    case DataType::kU32:
      return ncclUint32;
    case DataType::kI64:
      return ncclInt64;
    case DataType::kU64:
      return ncclUint64;
    case DataType::kF16:
      return ncclFloat16;
    case DataType::kBF16:
      return ncclBfloat16;
    case DataType::kF32:
      return ncclFloat32;
    case DataType::kF64:
      return ncclFloat64;
    case DataType::kBool:
    case DataType::kU8:
    case DataType::kF8E5M2:
    case DataType::kF8E4M3:
    case DataType::kI16:
    case DataType::kU16:
      return ncclUint8;
  }
  return ncclUint8;
}

ncclRedOp_t ReductionOf(CollectiveReduction kind) {
  // In the order of CollectiveReduction.
  constexpr ncclRedOp_t kValues[] = {ncclSum, ncclProd, ncclMin, ncclMax, ncclAvg};
  static_assert(std::size(kValues) == static_cast<size_t>(CollectiveReduction::kAverage) + 1);
  return kValues[static_cast<size_t>(kind)];
}

absl::string_view NameOfCall(CollectiveKind kind) {
  // In the order of CollectiveKind.
  constexpr absl::string_view kNames[] = {"ncclBroadcast", "ncclAllGather", "ncclReduce",
                                          "ncclAllReduce", "ncclReduceScatter"};
  static_assert(std::size(kNames) == static_cast<size_t>(CollectiveKind::kReduceScatter) + 1);
  return kNames[static_cast<size_t>(kind)];
}

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
  if (handle_ != nullptr) nccl_.ncclCommAbort(Release());
}

std::optional<int64_t> NcclCommunicator::MemoryBytes() const {
  if (nccl_.ncclCommMemStats == nullptr || !CheckIdle("ncclCommMemStats").ok()) return std::nullopt;
  uint64_t bytes = 0;
  const ncclResult_t result = nccl_.ncclCommMemStats(handle_, ncclStatGpuMemTotal, &bytes);
  // Refused, or 0, where the environment has turned off what counts.
  if (result != ncclSuccess || bytes == 0) return std::nullopt;
  return static_cast<int64_t>(bytes);
}

ncclComm_t NcclCommunicator::Release() {
  if (options_.m2n != nullptr) options_.m2n->Abandon(handle_);
  return std::exchange(handle_, nullptr);
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
  // Without a group its errors bear the name of the call.
  if (collectives.size() == 1) {
    return Begun(Call(collectives[0], stream), NameOfCall(collectives[0].kind));
  }
  RETURN_IF_ERROR(Begun(nccl_.ncclGroupStart(), "ncclGroupStart"));
  // As in Exchange.
  for (const Collective& collective : collectives) Call(collective, stream);
  return Begun(nccl_.ncclGroupEnd(), "ncclGroupEnd");
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

ncclResult_t NcclCommunicator::Call(const Collective& collective, CUstream stream) const {
  const void* const from = Pointer(collective.from);
  void* const to = Pointer(collective.to);
  const auto count = static_cast<size_t>(collective.count);
  const size_t bytes = count * ItemBytes(collective.type);
  const ncclDataType_t type = TypeOf(collective.type);
  const ncclRedOp_t reduction = ReductionOf(collective.reduction);
  switch (collective.kind) {
    case CollectiveKind::kBroadcast:
      return nccl_.ncclBroadcast(from, to, bytes, ncclUint8, collective.root, handle_, stream);
    case CollectiveKind::kAllGather:
      return nccl_.ncclAllGather(from, to, bytes, ncclUint8, handle_, stream);
    case CollectiveKind::kReduce:
      return nccl_.ncclReduce(from, to, count, type, reduction, collective.root, handle_, stream);
    case CollectiveKind::kAllReduce:
      return nccl_.ncclAllReduce(from, to, count, type, reduction, handle_, stream);
    case CollectiveKind::kReduceScatter:
      return nccl_.ncclReduceScatter(from, to, count, type, reduction, handle_, stream);
  }
  return ncclInvalidArgument;
}

absl::StatusOr<Communicator::Progress> NcclCommunicator::Poll() {
  RETURN_IF_ERROR(failure_);
  if (handle_ == nullptr) {
    return About(absl::FailedPreconditionError("Poll after it was ended"));
  }
  if (is_in_m2n_) return PollInM2n();
  ncclResult_t state = ncclSuccess;
  RETURN_IF_ERROR(Keep(nccl_.ncclCommGetAsyncError(handle_, &state), "ncclCommGetAsyncError"));
  // Of an idle communicator as well: that a peer has failed is told nowhere else.
  RETURN_IF_ERROR(Keep(state, call_in_progress_.empty() ? "state" : call_in_progress_));
  if (state == ncclInProgress) return Progress::kInProgress;
  call_in_progress_ = {};
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
  RETURN_IF_ERROR(Begun(nccl_.ncclCommFinalize(handle_), "ncclCommFinalize"));
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
  return Begun(nccl_.ncclCommFinalize(handle_), "ncclCommFinalize");
}

absl::Status NcclCommunicator::Revoke() {
  RETURN_IF_ERROR(CheckIdle("Revoke"));
  if (options_.m2n != nullptr && options_.m2n->keeps(handle_)) {
    return About(absl::FailedPreconditionError(
        "NCCL M2N keeps memory that is registered with it, which goes with an abort alone"));
  }
  return Begun(nccl_.ncclCommRevoke(handle_, NCCL_REVOKE_DEFAULT), "ncclCommRevoke");
}

}  // namespace crossmesh
