#pragma once

#include <cstddef>

#include <absl/strings/string_view.h>
#include <cuda.h>
#include <nccl.h>

namespace crossmesh {

enum class OperationKind : uint8_t {
  kSend,
  kReceive,
  kBroadcast,
  kReduce,
  kAllReduce,
  kAllGather,
  kReduceScatter
};

// One call of communication, as it was made. Immutable.
struct Operation {
  absl::string_view name;  // "ncclSend"
  OperationKind kind = OperationKind::kSend;
  const void* from = nullptr;  // null where the rank has nothing to give
  void* to = nullptr;          // null where it gets nothing
  size_t count = 0;            // as given to the call
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t reduction = ncclSum;
  int peer = 0;  // or root
  CUstream stream = nullptr;

  bool is_collective() const {
    return kind != OperationKind::kSend && kind != OperationKind::kReceive;
  }
};

}  // namespace crossmesh
