#pragma once

#include <array>
#include <cstdint>
#include <ostream>
#include <string>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// The ways in which a training is spread over devices. A normal layer computes O = I W, of I with m
// rows (tokens) and k columns and W with n columns; transposed layers, every other one, swap c and
// r, so that nothing moves between layers (arXiv 2305.13525; docs/grids.md has the letters of
// others).
enum class GridAxis : uint8_t {
  kC,         // cuts k, over which products are summed
  kR,         // cuts n
  kZ,         // cuts m, and what is stored of W
  kContext,   // cuts sequences
  kExpert,    // cuts the experts of a layer; for all other layers as kData
  kPipeline,  // cuts the layers into stages
  kData,      // copies, each with its samples
};
inline constexpr int kGridAxisCount = 7;
inline constexpr std::array<GridAxis, kGridAxisCount> kGridAxes = {
    GridAxis::kC,      GridAxis::kR,        GridAxis::kZ,   GridAxis::kContext,
    GridAxis::kExpert, GridAxis::kPipeline, GridAxis::kData};

// "c", "r", "z", "context", "expert", "pipeline", "data".
absl::string_view GridAxisName(GridAxis axis);
// InvalidArgument, with those that there are.
absl::StatusOr<GridAxis> ParseGridAxis(absl::string_view name);

// A value for each axis.
template <typename Value>
struct PerAxis {
  std::array<Value, kGridAxisCount> values{};

  Value& operator[](GridAxis axis) { return values[static_cast<size_t>(axis)]; }
  const Value& operator[](GridAxis axis) const { return values[static_cast<size_t>(axis)]; }
  friend auto operator<=>(const PerAxis&, const PerAxis&) = default;
};

// The size of every axis, at least 1.
struct Grid {
  PerAxis<int64_t> sizes{{1, 1, 1, 1, 1, 1, 1}};

  int64_t& operator[](GridAxis axis) { return sizes[axis]; }
  int64_t operator[](GridAxis axis) const { return sizes[axis]; }
  int64_t c() const { return sizes[GridAxis::kC]; }
  int64_t r() const { return sizes[GridAxis::kR]; }
  int64_t z() const { return sizes[GridAxis::kZ]; }
  int64_t context() const { return sizes[GridAxis::kContext]; }
  int64_t expert() const { return sizes[GridAxis::kExpert]; }
  int64_t pipeline() const { return sizes[GridAxis::kPipeline]; }
  int64_t data() const { return sizes[GridAxis::kData]; }

  int64_t devices() const;
  int64_t tensor_degree() const { return c() * r() * z(); }
  // So many groups of devices have samples of their own.
  int64_t sample_groups() const { return z() * expert() * data(); }
  // Axes of more than one.
  int axes_used() const;

  friend auto operator<=>(const Grid&, const Grid&) = default;
};

// The order of axes over the devices, the one whose neighbours are neighbours first. The paper's is
// c, r, z, pipeline, data.
using GridOrder = std::array<GridAxis, kGridAxisCount>;
inline constexpr GridOrder kGridOrder = kGridAxes;

// The product of the sizes of the axes inside of each one.
PerAxis<int64_t> InnerSizes(const Grid& grid, const GridOrder& order);

// "r=4,z=8,data=2": the axes of more than one, or "c=1".
std::string ToString(const Grid& grid);
inline std::ostream& operator<<(std::ostream& out, const Grid& grid) {
  return out << ToString(grid);
}
// InvalidArgument, naming what is not NAME=SIZE with a known name, given once, and a size of 1 to
// 65536.
absl::StatusOr<Grid> ParseGrid(absl::string_view text);

// "c,r,z,context,expert,pipeline,data". InvalidArgument unless each axis is there once.
absl::StatusOr<GridOrder> ParseGridOrder(absl::string_view text);
std::string ToString(const GridOrder& order);

// How activations lie between layers.
enum class ActivationForm : uint8_t {
  // Copies on the axis that the layer's product is summed over, made by all-reduces.
  kReplicated,
  // Rows cut by that axis as well: gathered before a product, scattered after it. With r alone
  // Megatron's sequence parallelism, with c = r = z the cube of arXiv 2105.14450.
  kScattered,
};
// "replicated", "scattered".
absl::string_view ActivationFormName(ActivationForm form);

// Where parameters and moments of vectors (norms, biases) lie, which c or r cuts.
enum class VectorForm : uint8_t {
  kReplicated,  // copies on all other axes
  // On the devices whose places on c and r are the same, cut once more by z: the diagonal of the
  // cube's face (arXiv 2105.14450). They are spread over the others before they are used, and their
  // gradients come back.
  kDiagonal,
};
// "replicated", "diagonal".
absl::string_view VectorFormName(VectorForm form);

}  // namespace crossmesh
