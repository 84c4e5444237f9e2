#include "worker/gpu/communicators/m2n_runtime.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <span>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Of elements that are only moved.
ncclDataType_t TypeOfBytes(int64_t item_bytes) {
  switch (item_bytes) {
    case 2:
      return ncclFloat16;
    case 4:
      return ncclUint32;
    case 8:
      return ncclUint64;
    default:
      return ncclUint8;
  }
}

// One side of a tensor, as the library takes it, with what it points to.
class Descriptor {
 public:
  Descriptor(const M2nSide& side, int64_t item_bytes, CUdeviceptr address)
      : dims_(side.mesh.begin(), side.mesh.end()),
        placements_(side.placements.begin(), side.placements.end()),
        shape_(side.local_shape.begin(), side.local_shape.end()) {
    mesh_.ndims = static_cast<int>(dims_.size());
    mesh_.dims = dims_.data();
    mesh_.startRank = side.first_rank;
    tensor_.dataPtr = reinterpret_cast<void*>(address);
    tensor_.localShape = shape_.data();
    tensor_.ndims = static_cast<int>(shape_.size());
    tensor_.dtype = TypeOfBytes(item_bytes);
    tensor_.mesh = &mesh_;
    tensor_.placements = placements_.data();
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  const ncclDistTensor_t* get() const { return &tensor_; }

 private:
  std::vector<int> dims_;
  std::vector<int> placements_;
  std::vector<size_t> shape_;
  ncclMesh_t mesh_;
  ncclDistTensor_t tensor_;
};

}  // namespace

M2nRuntime::M2nRuntime(const DriverApi& driver, absl::StatusOr<std::unique_ptr<const M2nApi>> api,
                       int ctas_max)
    : driver_(driver), api_(std::move(api)), ctas_max_(ctas_max) {}

absl::Status M2nRuntime::CheckUsable() const {
  if (!api_.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("strategy m2n: NCCL M2N is not available: ", api_.status().message()));
  }
  return failure_;
}

absl::Status M2nRuntime::BeginReshard(ncclComm_t communicator, std::vector<M2nTensor> tensors,
                                      CUstream stream) {
  RETURN_IF_ERROR(CheckUsable());
  const bool is_others = user_ != communicator;
  const absl::Status begun = Run([this, communicator, is_others, stream,
                                  tensors = std::move(tensors)]() mutable -> absl::Status {
    if (is_others) RETURN_IF_ERROR(Release());
    return Reshard(communicator, tensors, stream);
  });
  if (begun.ok()) user_ = communicator;
  return begun;
}

absl::Status M2nRuntime::BeginRelease(ncclComm_t communicator) {
  RETURN_IF_ERROR(CheckUsable());
  const absl::Status begun = Run([this] { return Release(); });
  if (begun.ok() && user_ == communicator) user_ = nullptr;
  return begun;
}

absl::Status M2nRuntime::Run(absl::AnyInvocable<absl::Status()> call) {
  if (is_calling()) {
    return absl::FailedPreconditionError("NCCL M2N: expected no call under way, found one");
  }
  CUcontext context = nullptr;
  RETURN_IF_ERROR(driver_.Check(driver_.cuCtxGetCurrent(&context), "cuCtxGetCurrent"));
  thread_ = Thread("nccl-m2n", [this, context, call = std::move(call)]() mutable {
    // The library takes the device of its thread, where that has none the first of the machine.
    absl::Status result = driver_.Check(driver_.cuCtxSetCurrent(context), "cuCtxSetCurrent");
    if (result.ok()) result = call();
    const MutexLock lock(mutex_);
    result_ = std::move(result);
  });
  return absl::OkStatus();
}

std::optional<absl::Status> M2nRuntime::Poll() {
  std::optional<absl::Status> result;
  {
    const MutexLock lock(mutex_);
    result = std::exchange(result_, std::nullopt);
  }
  if (!result.has_value()) return result;
  thread_.Join();
  thread_ = Thread();
  failure_.Update(*result);
  return result;
}

void M2nRuntime::Abandon(ncclComm_t communicator) {
  if (!keeps(communicator)) return;
  failure_.Update(absl::FailedPreconditionError(
      "NCCL M2N still keeps memory of a communicator that has gone; only another process is rid "
      "of it"));
}

absl::Status M2nRuntime::Release() {
  if (handle_ == nullptr) return absl::OkStatus();
  const M2nApi& m2n = **api_;
  return m2n.Check(m2n.ncclM2nFinalize(std::exchange(handle_, nullptr)), "ncclM2nFinalize");
}

absl::Status M2nRuntime::Reshard(ncclComm_t communicator, std::vector<M2nTensor>& tensors,
                                 CUstream stream) {
  const M2nApi& m2n = **api_;
  if (handle_ == nullptr) {
    ncclM2nConfig_t config;
    if (ctas_max_ > 0) config.maxCta = ctas_max_;
    RETURN_IF_ERROR(m2n.Check(m2n.ncclM2nInit(&handle_, &config), "ncclM2nInit"));
  }
  RETURN_IF_ERROR(m2n.Check(m2n.ncclM2nGroupStart(), "ncclM2nGroupStart"));
  for (const M2nTensor& tensor : tensors) {
    const Descriptor source(tensor.transfer->source, tensor.item_bytes, tensor.source);
    const Descriptor destination(tensor.transfer->destination, tensor.item_bytes,
                                 tensor.destination);
    const ncclResult_t result =
        m2n.ncclReshard(handle_, communicator, source.get(), destination.get(), stream);
    if (result == ncclSuccess) continue;
    const absl::Status refused = m2n.Check(result, "ncclReshard");
    m2n.ncclM2nGroupAbort();
    return refused;
  }
  return m2n.Check(m2n.ncclM2nGroupEnd(), "ncclM2nGroupEnd");
}

}  // namespace crossmesh
