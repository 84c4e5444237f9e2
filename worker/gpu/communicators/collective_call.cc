#include "worker/gpu/communicators/collective_call.h"

#include <cstddef>
#include <iterator>

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

void* AsPointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

}  // namespace

absl::string_view NameOfCall(CollectiveKind kind) {
  // In the order of CollectiveKind.
  constexpr absl::string_view kNames[] = {"ncclBroadcast", "ncclAllGather", "ncclReduce",
                                          "ncclAllReduce", "ncclReduceScatter"};
  static_assert(std::size(kNames) == static_cast<size_t>(CollectiveKind::kReduceScatter) + 1);
  return kNames[static_cast<size_t>(kind)];
}

ncclResult_t CallCollective(const NcclApi& nccl, const Collective& collective, ncclComm_t handle,
                            CUstream stream) {
  const void* const from = AsPointer(collective.from);
  void* const to = AsPointer(collective.to);
  const auto count = static_cast<size_t>(collective.count);
  const size_t bytes = count * ItemBytes(collective.type);
  const ncclDataType_t type = TypeOf(collective.type);
  const ncclRedOp_t reduction = ReductionOf(collective.reduction);
  switch (collective.kind) {
    case CollectiveKind::kBroadcast:
      return nccl.ncclBroadcast(from, to, bytes, ncclUint8, collective.root, handle, stream);
    case CollectiveKind::kAllGather:
      return nccl.ncclAllGather(from, to, bytes, ncclUint8, handle, stream);
    case CollectiveKind::kReduce:
      return nccl.ncclReduce(from, to, count, type, reduction, collective.root, handle, stream);
    case CollectiveKind::kAllReduce:
      return nccl.ncclAllReduce(from, to, count, type, reduction, handle, stream);
    case CollectiveKind::kReduceScatter:
      return nccl.ncclReduceScatter(from, to, count, type, reduction, handle, stream);
  }
  return ncclInvalidArgument;
}

}  // namespace crossmesh
