// What Crossmesh calls of NCCL M2N, NVIDIA's library for reshards, as nccl_m2n.h of
// nccl-extensions 0.1.0 declares it (API version 2): the library comes with a wheel of its own, and
// building must not need that. What M2nApi loads, and what the stand-in of the tests provides.

#pragma once

#include <cstddef>

#include <nccl.h>

#define CROSSMESH_M2N_SYMBOLS(X) \
  X(ncclM2nFinalize)             \
  X(ncclM2nGetLastError)         \
  X(ncclM2nGroupAbort)           \
  X(ncclM2nGroupEnd)             \
  X(ncclM2nGroupStart)           \
  X(ncclM2nInit)                 \
  X(ncclReshard)

extern "C" {

inline constexpr unsigned int kM2nApiVersion = 2;
inline constexpr unsigned int kM2nConfigMagic = 0x4d324e32;  // "M2N2"

struct ncclMesh_t {
  size_t size = sizeof(ncclMesh_t);
  unsigned int version = kM2nApiVersion;
  int ndims = 0;  // 1 or 2
  int* dims = nullptr;
  int startRank = 0;
};

struct ncclDistTensor_t {
  size_t size = sizeof(ncclDistTensor_t);
  unsigned int version = kM2nApiVersion;
  void* dataPtr = nullptr;  // null at ranks that are not in the mesh
  size_t* localShape = nullptr;
  int ndims = 0;  // 1 to 3
  ncclDataType_t dtype = ncclInt8;
  const ncclMesh_t* mesh = nullptr;
  int* placements = nullptr;  // by axis of the mesh: a dimension, or -1 for replicas
};

struct ncclM2nConfig_t {
  size_t size = sizeof(ncclM2nConfig_t);
  unsigned int magic = kM2nConfigMagic;
  unsigned int version = kM2nApiVersion;
  int maxCta = -2147483647 - 1;  // as the library thinks best
};

using ncclM2nHandle_t = struct ncclM2nHandle*;

ncclResult_t ncclM2nInit(ncclM2nHandle_t* handle, const ncclM2nConfig_t* config);
// Of the last handle of the process: gives back what it keeps for communicators, which must be
// there still, and whose work must be complete.
ncclResult_t ncclM2nFinalize(ncclM2nHandle_t handle);
// Of the calling thread; valid until its next call.
const char* ncclM2nGetLastError(void);
// These of one thread. Tensors are copied as they are recorded, with all that they point to.
ncclResult_t ncclM2nGroupStart(void);
ncclResult_t ncclM2nGroupEnd(void);
// Only discards what was recorded.
ncclResult_t ncclM2nGroupAbort(void);
ncclResult_t ncclReshard(ncclM2nHandle_t handle, ncclComm_t communicator,
                         const ncclDistTensor_t* source, const ncclDistTensor_t* destination,
                         cudaStream_t stream);

}  // extern "C"

// As the library's compiler lays them out.
static_assert(sizeof(ncclMesh_t) == 32);
static_assert(sizeof(ncclDistTensor_t) == 56);
static_assert(sizeof(ncclM2nConfig_t) == 24);
