#pragma once

#include "common/mesh/layout.h"
#include "common/mesh/mesh.h"
#include "common/mesh/shape.h"
#include "planner/redistribute/sub_axis.h"

#include <cstdint>
#include <span>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// What is done to the summands of a tensor that is partial. kMean divides the sum once, at the end.
enum class PartialReduction : uint8_t { kSum, kMean, kMin, kMax };
absl::string_view PartialReductionName(PartialReduction kind);  // "sum", "mean", "min", "max"
// InvalidArgument for any other name; the message lists them.
absl::StatusOr<PartialReduction> ParsePartialReduction(absl::string_view name);

// Devices that differ only in this part of an axis hold summands of one value (DTensor's Partial,
// Shardy's unreduced axes).
struct PartialAxis {
  SubAxis part;
  PartialReduction reduction = PartialReduction::kSum;
  friend bool operator==(const PartialAxis&, const PartialAxis&) = default;
};

// How the tensor lies before, or is to lie afterwards: for each dimension the parts of axes that
// cut it, major first; the parts over which it is partial. Other parts replicate.
struct RedistributionEnd {
  std::vector<std::vector<SubAxis>> dimensions;
  std::vector<PartialAxis> partial = {};
  UnevenRule rule = UnevenRule::kExact;  // for dimensions that do not divide
  // For kNestedChunk, how many parts each axis makes of what the one before it has left, major
  // first, by dimension; empty: what is listed in `dimensions`, one after the other.
  std::vector<std::vector<int64_t>> levels = {};
  friend bool operator==(const RedistributionEnd&, const RedistributionEnd&) = default;
};

// A change of layout of one tensor inside one mesh, whose devices are numbered row-major.
struct RedistributionRequest {
  std::vector<Axis> axes;
  Shape shape;
  int64_t item_bytes = 1;
  RedistributionEnd source;
  RedistributionEnd destination;
};

// InvalidArgument when the request means nothing, whatever the search: an axis misnamed or of size
// below 1, more than 65,536 devices, items of no bytes; for either end another number of dimensions
// than the shape has, a part of an axis that does not exist, parts that overlap (one that cuts two
// dimensions, or is partial and cuts one), a dimension that does not divide under kExact;
// reductions of two kinds; a destination that is partial where the source is not; parts of one axis
// at both ends that do not divide each other, such as y:(1)2 and y:(1)3 of 6. The message names the
// end, what was expected and what was found.
absl::Status Validate(const RedistributionRequest& request);

// An end from a layout of axes, with its rule. InvalidArgument when the layout has explicit tiles
// or names an axis that is not among `axes`. Partial axes are whole axes, by name.
absl::StatusOr<RedistributionEnd> EndOf(const Layout& layout, std::span<const Axis> axes,
                                        std::span<const std::string> partial = {},
                                        PartialReduction reduction = PartialReduction::kSum);

}  // namespace crossmesh
