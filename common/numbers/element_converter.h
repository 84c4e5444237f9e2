#pragma once

#include "common/mesh/conversion.h"

#include <cstddef>
#include <cstdint>

namespace crossmesh {

// Converts elements that follow each other in memory, at any addresses, until it has written
// `bytes` bytes, a whole number of elements. The ranges do not overlap. Allocates nothing;
// thread-safe.
using ElementConverter = void (*)(const std::byte* from, std::byte* to, int64_t bytes);

// Of one of F32, F16 and BF16 to another, rounded as number_formats.h says, so to the same bits as
// on a GPU.
ElementConverter ConverterFor(const Conversion& conversion);

}  // namespace crossmesh
