#include "tests/standin/nccl/group.h"
#include "tests/standin/nccl/reduction.h"

using crossmesh::Group;
using crossmesh::NcclCall;
using crossmesh::Operation;
using crossmesh::OperationKind;

namespace {

ncclResult_t Run(const Operation& operation, ncclComm_t communicator) {
  const size_t bytes = operation.count * crossmesh::BytesOf(operation.type);
  NcclCall call(operation.name.data(), operation.stream, static_cast<int64_t>(bytes));
  return call.End(Group::OfThread().Add(call, communicator, operation));
}

}  // namespace

extern "C" {

ncclResult_t ncclGroupStart() {
  NcclCall call("ncclGroupStart");
  Group::OfThread().Start();
  return call.End({});
}

ncclResult_t ncclGroupEnd() {
  NcclCall call("ncclGroupEnd");
  return call.End(Group::OfThread().End(call));
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  return Run({.name = "ncclSend",
              .kind = OperationKind::kSend,
              .from = from,
              .count = count,
              .type = type,
              .peer = peer,
              .stream = stream},
             communicator);
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  return Run({.name = "ncclRecv",
              .kind = OperationKind::kReceive,
              .to = to,
              .count = count,
              .type = type,
              .peer = peer,
              .stream = stream},
             communicator);
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
  return Run({.name = "ncclBroadcast",
              .kind = OperationKind::kBroadcast,
              .from = from,
              .to = to,
              .count = count,
              .type = type,
              .peer = root,
              .stream = stream},
             communicator);
}

ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                        ncclRedOp_t reduction, int root, ncclComm_t communicator,
                        cudaStream_t stream) {
  return Run({.name = "ncclReduce",
              .kind = OperationKind::kReduce,
              .from = from,
              .to = to,
              .count = count,
              .type = type,
              .reduction = reduction,
              .peer = root,
              .stream = stream},
             communicator);
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t reduction, ncclComm_t communicator, cudaStream_t stream) {
  return Run({.name = "ncclAllReduce",
              .kind = OperationKind::kAllReduce,
              .from = from,
              .to = to,
              .count = count,
              .type = type,
              .reduction = reduction,
              .stream = stream},
             communicator);
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream) {
  return Run({.name = "ncclAllGather",
              .kind = OperationKind::kAllGather,
              .from = from,
              .to = to,
              .count = count,
              .type = type,
              .stream = stream},
             communicator);
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t reduction, ncclComm_t communicator,
                               cudaStream_t stream) {
  return Run({.name = "ncclReduceScatter",
              .kind = OperationKind::kReduceScatter,
              .from = from,
              .to = to,
              .count = count,
              .type = type,
              .reduction = reduction,
              .stream = stream},
             communicator);
}

}  // extern "C"
