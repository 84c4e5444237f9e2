#include "worker/gpu/kernels/kernel_image.h"

// The assembler takes in the file that CMake names; a C++ array of this size would take the
// compiler seconds.
asm(R"(
  .pushsection .rodata
  .balign 64
  .global crossmesh_kernel_image_begin
  .hidden crossmesh_kernel_image_begin
crossmesh_kernel_image_begin:
  .incbin ")" CROSSMESH_KERNEL_IMAGE R"("
  .global crossmesh_kernel_image_end
  .hidden crossmesh_kernel_image_end
crossmesh_kernel_image_end:
  .popsection
)");

extern "C" {
[[gnu::visibility("hidden")]] extern const std::byte crossmesh_kernel_image_begin[];
[[gnu::visibility("hidden")]] extern const std::byte crossmesh_kernel_image_end[];
}

namespace crossmesh {

std::span<const std::byte> KernelImage() {
  return {crossmesh_kernel_image_begin, crossmesh_kernel_image_end};
}

}  // namespace crossmesh
