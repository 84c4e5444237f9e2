// The calls of NCCL that Crossmesh makes, and no others: what NcclApi loads and what the stand-in
// of the tests provides.

#pragma once

// All of these are in every NCCL that NcclApi takes.
#define CROSSMESH_NCCL_SYMBOLS(X) \
  /* Versions, errors */          \
  X(ncclGetErrorString)           \
  X(ncclGetLastError)             \
  X(ncclGetVersion)               \
  /* Communicators */             \
  X(ncclCommAbort)                \
  X(ncclCommCount)                \
  X(ncclCommCuDevice)             \
  X(ncclCommDestroy)              \
  X(ncclCommFinalize)             \
  X(ncclCommGetAsyncError)        \
  X(ncclCommInitRankConfig)       \
  X(ncclCommSplit)                \
  X(ncclCommUserRank)             \
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

// Null where the library is older, or does without.
#define CROSSMESH_NCCL_OPTIONAL_SYMBOLS(X) \
  X(ncclCommGetUniqueId)      /* 2.29.2 */ \
  X(ncclCommGrow)             /* 2.29.2 */ \
  X(ncclCommInitRankScalable) /* 2.23 */   \
  X(ncclCommMemStats)         /* 2.29.7 */ \
  X(ncclCommRevoke)           /* 2.28.7 */ \
  X(ncclCommShrink)           /* 2.27.3 */
