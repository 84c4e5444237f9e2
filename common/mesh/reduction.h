#pragma once

#include "common/mesh/data_type.h"

#include <cstdint>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

enum class ReductionKind : uint8_t { kSum, kMin, kMax };

absl::string_view ReductionKindName(ReductionKind kind);  // "sum", "min", "max"

// How the summands of an element become one. common/numbers/element_reducer.h says to which bits.
struct Reduction {
  ReductionKind kind = ReductionKind::kSum;
  int64_t divisor = 1;  // of a sum: the mean's
  friend bool operator==(const Reduction&, const Reduction&) = default;
};

// Elements can be reduced when they are integers, F16, BF16, F32 or F64. A sum is divided by at
// least 1, a minimum or maximum by 1. InvalidArgument, naming the type, for all else.
absl::Status CheckReduction(DataType type, const Reduction& reduction);

}  // namespace crossmesh
