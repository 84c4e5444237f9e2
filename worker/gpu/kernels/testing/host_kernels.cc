#include "worker/gpu/kernels/testing/host_kernels.h"

#include "common/base/check.h"
#include "worker/gpu/kernels/kernel_table.h"
#include "worker/gpu/kernels/testing/run_on_host.h"

#include <algorithm>
#include <array>

namespace crossmesh {
namespace {

template <class Body>
void Run(int32_t blocks, const void* argument) {
  RunOnHost<Body>(blocks, *static_cast<const typename Body::Arguments*>(argument));
}

template <class Body>
constexpr HostKernel HostKernelWith(absl::string_view name) {
  return {.name = name, .argument_bytes = sizeof(typename Body::Arguments), .run = &Run<Body>};
}

#define CROSSMESH_KERNEL(name, ...) HostKernelWith<__VA_ARGS__>(#name),
constexpr auto kHostKernels = std::to_array({CROSSMESH_KERNELS(CROSSMESH_KERNEL)});
#undef CROSSMESH_KERNEL

}  // namespace

std::span<const HostKernel> HostKernels() { return kHostKernels; }

const HostKernel& HostKernelOf(absl::string_view name) {
  const auto found = std::ranges::find(kHostKernels, name, &HostKernel::name);
  CHECK(found != kHostKernels.end()) << name;
  return *found;
}

}  // namespace crossmesh
