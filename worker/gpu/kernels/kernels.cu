// The kernels: their bodies' phases, with a barrier after each.

#define CROSSMESH_DEVICE __device__
#define CROSSMESH_UNROLL _Pragma("unroll")
#define CROSSMESH_ASSUME_GLOBAL(pointer) __builtin_assume(__isGlobal(pointer))

#include "worker/gpu/kernels/kernel_table.h"

namespace crossmesh {
namespace {

// Four blocks of threads share a multiprocessor's registers, so that some move bytes while others
// are between barriers.
constexpr int kBlocksAtOnce = 4;

template <class Body, int phase = 0>
__device__ __forceinline__ void RunPhases(KernelPlace place,
                                          const typename Body::Arguments& arguments,
                                          typename Body::Shared& shared,
                                          typename Body::Registers& registers) {
  Body::template Run<phase>(place, arguments, shared, registers);
  if constexpr (phase + 1 < Body::kPhases) {
    __syncthreads();
    RunPhases<Body, phase + 1>(place, arguments, shared, registers);
  }
}

}  // namespace

#define CROSSMESH_KERNEL(name, ...)                                                               \
  extern "C" __global__ void __launch_bounds__(__VA_ARGS__::kThreads, kBlocksAtOnce)              \
      name(const __grid_constant__ __VA_ARGS__::Arguments arguments) {                            \
    __shared__ __VA_ARGS__::Shared shared;                                                        \
    __VA_ARGS__::Registers registers;                                                             \
    const KernelPlace place{static_cast<int32_t>(blockIdx.x), static_cast<int32_t>(threadIdx.x)}; \
    RunPhases<__VA_ARGS__>(place, arguments, shared, registers);                                  \
  }
CROSSMESH_KERNELS(CROSSMESH_KERNEL)
#undef CROSSMESH_KERNEL

}  // namespace crossmesh
