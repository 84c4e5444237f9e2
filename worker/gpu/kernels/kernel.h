#pragma once

#include "common/mesh/conversion.h"
#include "common/mesh/data_type.h"
#include "worker/gpu/kernels/kernel_arguments.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <absl/strings/string_view.h>

namespace crossmesh {

// How a kernel of the image is launched: one-dimensional, one parameter, no dynamic shared memory.
struct Kernel {
  absl::string_view name;  // of the function in the image; ends with a zero
  int32_t threads = 0;     // of a block
  KernelParameter parameter = KernelParameter::kPack;
  size_t argument_bytes = 0;
};

// Sorted by name.
std::span<const Kernel> Kernels();

// The name of the kernel that does what `name` does, and converts what it reads. Example: of
// crossmesh_pack and F32 as BF16, crossmesh_pack_f32_as_bf16.
std::string ConvertingKernelName(absl::string_view name, const Conversion& conversion);

// The name of the kernel that reduces elements of a type, which CheckReduction allows: of F32,
// crossmesh_reduce_f32.
std::string ReducingKernelName(DataType type);

}  // namespace crossmesh
