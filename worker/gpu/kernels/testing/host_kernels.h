#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <absl/strings/string_view.h>

namespace crossmesh {

// A kernel of the image, run on the host: its own code, compiled for the host, not its CPU
// reference implementation.
struct HostKernel {
  absl::string_view name;  // as in Kernels(), and in that order; ends with a zero
  size_t argument_bytes = 0;
  // `blocks` is what the launch's grid has; `argument` points to the kernel's parameter.
  void (*run)(int32_t blocks, const void* argument) = nullptr;
};

std::span<const HostKernel> HostKernels();
// CHECKs that there is one.
const HostKernel& HostKernelOf(absl::string_view name);

}  // namespace crossmesh
