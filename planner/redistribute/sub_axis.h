#pragma once

#include "common/mesh/mesh.h"

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// A part of a mesh axis of n coordinates: coordinate c of the axis has coordinate
// (c / (n / (before * size))) % size on the part, where `before` is the product of what is more
// major. The whole axis has before 1 and size n.
//
// Text form, which is Shardy's: "y" for the whole axis, "y:(2)3" for before 2 and size 3.
struct SubAxis {
  int32_t axis = 0;
  int64_t before = 1;
  int64_t size = 1;
  friend auto operator<=>(const SubAxis&, const SubAxis&) = default;
};

// `sub_axis.axis` must be one of `axes`.
std::string ToString(const SubAxis& sub_axis, std::span<const Axis> axes);
// InvalidArgument when the text is not of that form, or the axis has no such part.
absl::StatusOr<SubAxis> ParseSubAxis(absl::string_view text, std::span<const Axis> axes);

// The prime factors of n >= 1, ascending; none of 1.
std::vector<int64_t> PrimeFactors(int64_t n);

}  // namespace crossmesh
