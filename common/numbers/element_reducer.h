#pragma once

#include "common/mesh/data_type.h"
#include "common/mesh/reduction.h"

#include <cstddef>
#include <cstdint>

namespace crossmesh {

// Arrays of elements that are reduced to one, place by place: one after another at a fixed
// distance, but for one that may lie elsewhere; at any addresses.
struct Summands {
  const std::byte* first = nullptr;
  int64_t distance_bytes = 0;            // from the beginning of one to that of the next
  int64_t count = 1;                     // at least 1
  const std::byte* elsewhere = nullptr;  // null: none does
  int64_t elsewhere_index = 0;

  const std::byte* At(int64_t index) const {
    if (elsewhere != nullptr && index == elsewhere_index) return elsewhere;
    return first + index * distance_bytes;
  }
};

// Writes to `out` what the summands come to, until it has written `bytes` bytes, a whole number of
// elements: the sum, divided by `divisor` at the end, or the minimum or maximum, for which the
// divisor is 1. `out` overlaps no summand. Allocates nothing; thread-safe.
//
// Summands are taken in order, whatever the number of elements, so that the same ones come to the
// same bits everywhere. Those of F16 and BF16 are added, and divided, in F32 and rounded once, as
// number_formats.h says; those of F32 and F64 in their own type. Integers wrap; their mean, that of
// the wrapped sum, is cut off towards zero. The minimum and maximum are those of IEEE 754-2019: a
// NaN wins, and -0 is below +0. A NaN comes out as the one with all bits but the sign set.
using ElementReducer = void (*)(const Summands& summands, std::byte* out, int64_t bytes,
                                int64_t divisor);

// Of a type that can be reduced (CheckReduction).
ElementReducer ReducerFor(DataType type, ReductionKind kind);

}  // namespace crossmesh
