// What each kernel does, as simply as can be said: for the tests, which hold kernels to it bit for
// bit. Nothing here is shared with the kernels but their arguments' structs.

#pragma once

#include "common/mesh/box.h"
#include "common/mesh/conversion.h"
#include "common/mesh/data_type.h"
#include "worker/gpu/kernels/kernel_arguments.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace crossmesh {

// The packed bytes of all boxes, elements converted on the way. Types are F32, F16 or BF16; equal
// ones may be any; BF16 becomes F8_E4M3 by the factors of boxes.
std::vector<std::byte> PackOnCpu(std::span<const KernelBox> boxes, DataType from, DataType to);
// Copies packed bytes of all boxes to them.
void UnpackOnCpu(std::span<const KernelBox> boxes, std::span<const std::byte> packed);
// Copies a range of the packed bytes of a class from boxes to others, elements converted on the
// way.
void CopyOnCpu(std::span<const KernelBox> sources, std::span<const KernelBox> destinations,
               Interval range, const Conversion& conversion);
// XXH3-64 of every 64 KiB, by the library.
std::vector<uint64_t> LeafHashesOnCpu(std::span<const std::byte> packed);

// One element, given and returned as bits in the low bytes.
uint32_t ConvertOnCpu(DataType from, DataType to, uint32_t bits);
// A number as fp8 (e4m3).
uint8_t Fp8OnCpu(double value);

// Writes the scales and factors of all blocks.
void ScaleOnCpu(std::span<const ScaledMatrix> matrices);

}  // namespace crossmesh
