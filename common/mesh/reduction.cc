#include "common/mesh/reduction.h"

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

bool IsReducible(DataType type) {
  switch (type) {
    case DataType::kBool:
    case DataType::kF8E5M2:
    case DataType::kF8E4M3:
      return false;
    case DataType::kU8:
    case DataType::kI8:
    case DataType::kI16:
    case DataType::kU16:
    case DataType::kF16:
    case DataType::kBF16:
    case DataType::kI32:
    case DataType::kU32:
    case DataType::kF32:
    case DataType::kI64:
    case DataType::kU64:
    case DataType::kF64:
      return true;
  }
  return false;
}

}  // namespace

absl::string_view ReductionKindName(ReductionKind kind) {
  switch (kind) {
    case ReductionKind::kSum:
      return "sum";
    case ReductionKind::kMin:
      return "min";
    case ReductionKind::kMax:
      return "max";
  }
  return "unknown";
}

absl::Status CheckReduction(DataType type, const Reduction& reduction) {
  if (!IsReducible(type)) {
    return absl::InvalidArgumentError(
        absl::StrCat(DataTypeName(type), " cannot be reduced; expected an integer type, or one of ",
                     "F16, BF16, F32 and F64"));
  }
  const bool is_sum = reduction.kind == ReductionKind::kSum;
  if (is_sum ? reduction.divisor >= 1 : reduction.divisor == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      ReductionKindName(reduction.kind), " of ", DataTypeName(type), ": expected a divisor of ",
      is_sum ? "at least 1" : "1", ", found ", reduction.divisor));
}

}  // namespace crossmesh
