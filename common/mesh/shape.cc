#include "common/mesh/shape.h"

#include "common/base/checked_math.h"
#include "common/base/status_macros.h"
#include "common/mesh/text_scanner.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

std::string LengthsToString(std::span<const int64_t> lengths) {
  return absl::StrCat("[", absl::StrJoin(lengths, ", "), "]");
}

}  // namespace

absl::StatusOr<Shape> Shape::Create(std::span<const int64_t> lengths) {
  if (lengths.size() > kRankMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape: expected at most ", kRankMax, " dimensions, found ", lengths.size()));
  }
  std::optional<int64_t> elements = 1;
  for (size_t d = 0; d < lengths.size(); ++d) {
    if (lengths[d] < 0 || lengths[d] > kDimensionMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape ", LengthsToString(lengths), ": dimension ", d,
                       ": expected a length of 0 to ", kDimensionMax, ", found ", lengths[d]));
    }
    if (elements) elements = CheckedMultiply(*elements, std::max<int64_t>(lengths[d], 1));
  }
  if (!elements || *elements > kElementsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape ", LengthsToString(lengths), ": expected at most ", kElementsMax,
                     " elements (zero lengths counted as 1), found ",
                     elements ? absl::StrCat(*elements) : "more than 2^63"));
  }
  Shape shape;
  shape.lengths_.assign(lengths.begin(), lengths.end());
  return shape;
}

int64_t Shape::elements() const {
  int64_t elements = 1;
  for (const int64_t length : lengths_) elements *= length;
  return elements;
}

Box Shape::FullBox() const {
  absl::InlinedVector<Interval, 4> intervals;
  for (const int64_t length : lengths_) intervals.push_back({0, length});
  return Box(std::move(intervals));
}

std::string ToString(const Shape& shape) { return LengthsToString(shape.lengths()); }

absl::StatusOr<Shape> ParseShape(absl::string_view text) {
  TextScanner scanner("shape", text);
  RETURN_IF_ERROR(scanner.Expect("["));
  std::vector<int64_t> lengths;
  if (!scanner.Take("]")) {
    do {
      ASSIGN_OR_RETURN(lengths.emplace_back(), scanner.Integer());
    } while (scanner.Take(","));
    RETURN_IF_ERROR(scanner.Expect("]"));
  }
  RETURN_IF_ERROR(scanner.ExpectEnd());
  return Shape::Create(lengths);
}

}  // namespace crossmesh
