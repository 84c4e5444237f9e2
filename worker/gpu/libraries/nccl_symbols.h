// The calls of NCCL that Crossmesh makes, and no others: what NcclApi loads and what the stand-in
// of the tests provides.

#pragma once

// In no NCCL before 2.29.7.
#define CROSSMESH_OPTIONAL_NCCL_SYMBOLS(X) X(ncclCommMemStats)

// All of these are in every NCCL that NcclApi takes.
#define CROSSMESH_NCCL_SYMBOLS(X) \
  /* Versions, errors */          \
  X(ncclGetErrorString)           \
  X(ncclGetLastError)             \
  X(ncclGetVersion)               \
  /* Communicators */             \
  X(ncclCommAbort)                \
  X(ncclCommDestroy)              \
  X(ncclCommFinalize)             \
  X(ncclCommGetAsyncError)        \
  X(ncclCommInitRankConfig)       \
  X(ncclCommRevoke)               \
  X(ncclCommSplit)                \
  X(ncclGetUniqueId)              \
  /* Memory */                    \
  X(ncclCommDeregister)           \
  X(ncclCommRegister)             \
  X(ncclMemAlloc)                 \
  X(ncclMemFree)                  \
  /* Communication */             \
  X(ncclAllGather)                \
  X(ncclAllReduce)                \
  X(ncclBroadcast)                \
  X(ncclGroupEnd)                 \
  X(ncclGroupStart)               \
  X(ncclRecv)                     \
  X(ncclReduce)                   \
  X(ncclReduceScatter)            \
  X(ncclSend)
