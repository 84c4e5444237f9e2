#pragma once

#include <cstddef>
#include <span>

namespace crossmesh {

// The compiled kernels, as the driver loads them: a fatbin with machine code for compute capability
// 9.0 and 10.0, and PTX for later ones.
std::span<const std::byte> KernelImage();

}  // namespace crossmesh
