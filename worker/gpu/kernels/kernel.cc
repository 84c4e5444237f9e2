#include "worker/gpu/kernels/kernel.h"

#include "worker/gpu/kernels/kernel_table.h"

#include <array>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// A kernel's arguments in all are limited to 4 KiB.
template <class Body>
constexpr Kernel KernelOf(absl::string_view name) {
  using Arguments = typename Body::Arguments;
  static_assert(sizeof(Arguments) <= 4096);
  return {.name = name,
          .threads = Body::kThreads,
          .parameter = Arguments::kParameter,
          .argument_bytes = sizeof(Arguments)};
}

#define CROSSMESH_KERNEL(name, ...) KernelOf<__VA_ARGS__>(#name),
constexpr auto kKernels = std::to_array({CROSSMESH_KERNELS(CROSSMESH_KERNEL)});
#undef CROSSMESH_KERNEL

}  // namespace

std::span<const Kernel> Kernels() { return kKernels; }

std::string ConvertingKernelName(absl::string_view name, const Conversion& conversion) {
  return absl::StrCat(name, "_", absl::AsciiStrToLower(DataTypeName(conversion.from)), "_as_",
                      absl::AsciiStrToLower(DataTypeName(conversion.to)));
}

std::string ReducingKernelName(DataType type) {
  return absl::StrCat("crossmesh_reduce_", absl::AsciiStrToLower(DataTypeName(type)));
}

}  // namespace crossmesh
