#include "common/mesh/conversion.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"

#include <cstddef>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

bool IsConvertible(DataType type) {
  return type == DataType::kF32 || type == DataType::kF16 || type == DataType::kBF16;
}

absl::Status CheckHasBlocks(const Shape& tensor) {
  if (tensor.rank() >= 2) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", ToString(tensor), ": blocks of ", kScaleBlockLength, " x ",
                   kScaleBlockLength, " need at least 2 dimensions, found ", tensor.rank()));
}

int64_t BlocksUpTo(int64_t end) { return (end + kScaleBlockLength - 1) / kScaleBlockLength; }

}  // namespace

absl::Status CheckConversion(DataType from, DataType to) {
  if (from == to || (IsConvertible(from) && IsConvertible(to)) ||
      (from == DataType::kBF16 && to == DataType::kF8E4M3)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(DataTypeName(from), " cannot be sent as ", DataTypeName(to),
                   "; expected any of F32, F16 and BF16 as any of them, or BF16 as F8_E4M3"));
}

absl::StatusOr<Shape> ScaleShape(const Shape& tensor) {
  RETURN_IF_ERROR(CheckHasBlocks(tensor));
  std::vector<int64_t> lengths(tensor.lengths().begin(), tensor.lengths().end());
  for (size_t i = lengths.size() - 2; i < lengths.size(); ++i) lengths[i] = BlocksUpTo(lengths[i]);
  return Shape::Create(lengths);
}

std::string ScalesName(absl::string_view tensor) { return absl::StrCat(tensor, "_scale_inv"); }

absl::StatusOr<Box> ScaleBox(const Shape& tensor, const Box& box) {
  RETURN_IF_ERROR(CheckHasBlocks(tensor));
  CHECK(tensor.FullBox().Contains(box)) << ToString(box) << " in " << ToString(tensor);
  absl::InlinedVector<Interval, 4> scales = box.intervals();
  for (int dimension = tensor.rank() - 2; dimension < tensor.rank(); ++dimension) {
    Interval& interval = scales[dimension];
    for (const int64_t cut : {interval.begin, interval.end}) {
      if (cut % kScaleBlockLength == 0 || cut == tensor[dimension]) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("box ", ToString(box), " of tensor ", ToString(tensor), ": dimension ",
                       dimension, " is cut at ", cut, ", inside a scale block; expected a multiple",
                       " of ", kScaleBlockLength, " or the tensor's end"));
    }
    interval = {BlocksUpTo(interval.begin), BlocksUpTo(interval.end)};
  }
  return Box(std::move(scales));
}

}  // namespace crossmesh
