// Elements of host memory as numbers, for tests and for what they compare with.

#pragma once

#include "common/mesh/data_type.h"
#include "worker/gpu/communicators/communicator.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace crossmesh {

// The element `index` of an array of `type`; whole numbers beyond 2^53 are rounded. Not for 8-bit
// floating point and BOOL, which are not reduced.
double ReadElement(DataType type, const std::byte* memory, int64_t index);
void WriteElement(DataType type, std::byte* memory, int64_t index, double value);

// Element by element of `sources`, each as long as `to`, computed in double precision and rounded
// once.
void ReduceElements(DataType type, ReductionKind reduction,
                    std::span<const std::byte* const> sources, std::span<std::byte> to);

}  // namespace crossmesh
