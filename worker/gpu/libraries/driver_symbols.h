// The calls of the CUDA driver that Crossmesh makes, and no others: what DriverApi loads and what
// the stand-in of the tests provides.
//
// cuda.h maps some names to a version, such as cuStreamDestroy to cuStreamDestroy_v2. A list passes
// its entries through a macro, so where cuda.h is included X sees the name with the version, which
// is the symbol of the library; CROSSMESH_SYMBOL_NAME gives it as text.

#pragma once

#define CROSSMESH_SYMBOL_NAME(symbol) CROSSMESH_SYMBOL_NAME_EXPANDED_(symbol)
#define CROSSMESH_SYMBOL_NAME_EXPANDED_(symbol) #symbol

#define CROSSMESH_DRIVER_SYMBOLS(X)               \
  /* Errors, versions, devices */                 \
  X(cuDriverGetVersion)                           \
  X(cuGetErrorName)                               \
  X(cuGetErrorString)                             \
  X(cuInit)                                       \
  X(cuDeviceGet)                                  \
  X(cuDeviceGetAttribute)                         \
  X(cuDeviceGetCount)                             \
  X(cuDeviceGetName)                              \
  X(cuDeviceGetUuid)                              \
  /* Contexts */                                  \
  X(cuCtxGetStreamPriorityRange)                  \
  X(cuCtxGetCurrent)                              \
  X(cuCtxSetCurrent)                              \
  X(cuCtxSynchronize)                             \
  X(cuDevicePrimaryCtxRelease)                    \
  X(cuDevicePrimaryCtxRetain)                     \
  /* Memory by address range */                   \
  X(cuMemAddressFree)                             \
  X(cuMemAddressReserve)                          \
  X(cuMemCreate)                                  \
  X(cuMemExportToShareableHandle)                 \
  X(cuMemGetAllocationGranularity)                \
  X(cuMemImportFromShareableHandle)               \
  X(cuMemMap)                                     \
  X(cuMemRelease)                                 \
  X(cuMemSetAccess)                               \
  X(cuMemUnmap)                                   \
  /* Memory of cudaMalloc in other processes */   \
  X(cuIpcCloseMemHandle)                          \
  X(cuIpcOpenMemHandle)                           \
  X(cuMemGetAddressRange)                         \
  /* Memory of the host, and how much there is */ \
  X(cuMemGetInfo)                                 \
  X(cuMemHostGetDevicePointer)                    \
  X(cuMemHostRegister)                            \
  X(cuMemHostUnregister)                          \
  /* Copies */                                    \
  X(cuMemcpy2DAsync)                              \
  X(cuMemcpyDtoDAsync)                            \
  X(cuMemcpyDtoHAsync)                            \
  X(cuMemcpyHtoDAsync)                            \
  X(cuMemsetD8Async)                              \
  /* Streams and events */                        \
  X(cuEventCreate)                                \
  X(cuEventDestroy)                               \
  X(cuEventElapsedTime)                           \
  X(cuEventQuery)                                 \
  X(cuEventRecord)                                \
  X(cuEventSynchronize)                           \
  X(cuStreamCreateWithPriority)                   \
  X(cuStreamDestroy)                              \
  X(cuStreamQuery)                                \
  X(cuStreamSynchronize)                          \
  X(cuStreamWaitEvent)                            \
  /* Kernels */                                   \
  X(cuLaunchKernel)                               \
  X(cuModuleGetFunction)                          \
  X(cuModuleLoadData)                             \
  X(cuModuleUnload)
