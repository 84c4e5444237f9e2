// Elements of host memory as numbers.

#pragma once

#include "common/mesh/data_type.h"

#include <cstddef>
#include <cstdint>

namespace crossmesh {

// The element `index` of an array of `type`, one of those that NCCL reduces; whole numbers beyond
// 2^53 are rounded.
double ReadElement(DataType type, const std::byte* memory, int64_t index);
void WriteElement(DataType type, std::byte* memory, int64_t index, double value);

}  // namespace crossmesh
