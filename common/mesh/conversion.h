#pragma once

#include "common/mesh/box.h"
#include "common/mesh/data_type.h"
#include "common/mesh/shape.h"

#include <cstdint>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// What becomes of elements on their way: of type `from` where they are read, and of type `to` from
// there on.
struct Conversion {
  DataType from = DataType::kF32;
  DataType to = DataType::kF32;
  friend bool operator==(const Conversion&, const Conversion&) = default;
};

// What elements can be converted to on their way: any of F32, F16 and BF16 to any of them, and BF16
// to F8_E4M3. Every type to itself, too. InvalidArgument for all else.
absl::Status CheckConversion(DataType from, DataType to);

// A tensor that is sent as F8_E4M3 has scales, a tensor of F32: one for each block of 128 x 128
// elements of its last two dimensions; blocks at the ends of these may be smaller.
inline constexpr int64_t kScaleBlockLength = 128;

// Example: a tensor [3, 300, 128] has scales [3, 3, 1].
//
// InvalidArgument when the tensor has fewer than two dimensions.
absl::StatusOr<Shape> ScaleShape(const Shape& tensor);

// What the tensor of scales is called, as in published checkpoints: "w.weight_scale_inv" of
// "w.weight". A number is about its fp8 value times its scale.
std::string ScalesName(absl::string_view tensor);

// The scales of a box of the tensor. InvalidArgument when a cut of the box goes through a block: it
// would take the elements on both sides to know the block's scale. Names the dimension and the cut.
//
// Example: of a tensor [300, 128], [128:300, 0:128] has the scales [1:3, 0:1], and [0:200, 0:128]
// is refused.
absl::StatusOr<Box> ScaleBox(const Shape& tensor, const Box& box);

}  // namespace crossmesh
