#include "tests/standin/nccl/group.h"
#include "tests/standin/nccl/reduction.h"

using crossmesh::Group;
using crossmesh::NcclCall;
using crossmesh::Operation;
using crossmesh::OperationKind;

namespace {

// What all calls of communication are given beside their buffers.
struct Rest {
  size_t count;
  ncclDataType_t type;
  ncclComm_t communicator;
  CUstream stream;
};

ncclResult_t Run(Operation operation, const Rest& rest) {
  operation.count = rest.count;
  operation.type = rest.type;
  operation.stream = rest.stream;
  const size_t bytes = rest.count * crossmesh::BytesOf(rest.type);
  NcclCall call(operation.name.data(), rest.stream, static_cast<int64_t>(bytes));
  return call.End(Group::OfThread().Add(rest.communicator, operation));
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
  return call.End(Group::OfThread().End());
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  return Run({.name = "ncclSend", .kind = OperationKind::kSend, .from = from, .peer = peer},
             {count, type, communicator, stream});
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  return Run({.name = "ncclRecv", .kind = OperationKind::kReceive, .to = to, .peer = peer},
             {count, type, communicator, stream});
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
  return Run({.name = "ncclBroadcast",
              .kind = OperationKind::kBroadcast,
              .from = from,
              .to = to,
              .peer = root},
             {count, type, communicator, stream});
}

ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                        ncclRedOp_t reduction, int root, ncclComm_t communicator,
                        cudaStream_t stream) {
  return Run({.name = "ncclReduce",
              .kind = OperationKind::kReduce,
              .from = from,
              .to = to,
              .reduction = reduction,
              .peer = root},
             {count, type, communicator, stream});
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t reduction, ncclComm_t communicator, cudaStream_t stream) {
  return Run({.name = "ncclAllReduce",
              .kind = OperationKind::kAllReduce,
              .from = from,
              .to = to,
              .reduction = reduction},
             {count, type, communicator, stream});
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream) {
  return Run({.name = "ncclAllGather", .kind = OperationKind::kAllGather, .from = from, .to = to},
             {count, type, communicator, stream});
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t reduction, ncclComm_t communicator,
                               cudaStream_t stream) {
  return Run({.name = "ncclReduceScatter",
              .kind = OperationKind::kReduceScatter,
              .from = from,
              .to = to,
              .reduction = reduction},
             {count, type, communicator, stream});
}

}  // extern "C"
