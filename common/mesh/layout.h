#pragma once

#include "common/mesh/box.h"
#include "common/mesh/mesh.h"
#include "common/mesh/shape.h"

#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// How a dimension of length L is cut into n parts when n does not divide L.
enum class UnevenRule : uint8_t {
  kExact,        // refused
  kChunk,        // ceil(L/n) each on the flattened axes; the last ones shorter or empty
  kNestedChunk,  // kChunk axis by axis, each on the part of the one before (PyTorch DTensor)
  kBalanced,     // the first L mod n parts get one more
};

// What one slot holds: disjoint boxes, in the order of its memory. Empty boxes are left out, so an
// empty tile has no box.
using Tile = std::vector<Box>;
// Elements of a tile whose boxes are disjoint and inside one Shape.
int64_t Volume(const Tile& tile);

// Mesh axes that cut each dimension, major first; axes that are not listed replicate.
struct AxisLayout {
  std::vector<std::vector<std::string>> dimensions;
  UnevenRule rule = UnevenRule::kExact;
  friend bool operator==(const AxisLayout&, const AxisLayout&) = default;
};

// Tiles given slot by slot, for ownership that no rule gives. Tiles of different slots may overlap.
struct ExplicitLayout {
  std::vector<Tile> slots;
  friend bool operator==(const ExplicitLayout&, const ExplicitLayout&) = default;
};

// How a tensor is spread over a mesh. Immutable value; names axes only, so it is bound to a mesh
// and a shape when tiles are asked for.
//
// Text form (docs/text-forms.md): "[data*model, -]" or "[data*model, -] nested_chunk"; "[]" for a
// scalar; explicit tiles "{[0:3, 0:4] [6:9, 0:4]; [3:6, 0:4]}" with slots between semicolons.
class Layout {
 public:
  Layout() = default;  // of a scalar
  explicit Layout(AxisLayout axes) : form_(std::move(axes)) {}
  explicit Layout(ExplicitLayout tiles) : form_(std::move(tiles)) {}

  const std::variant<AxisLayout, ExplicitLayout>& form() const { return form_; }
  const AxisLayout* axes() const { return std::get_if<AxisLayout>(&form_); }
  const ExplicitLayout* tiles() const { return std::get_if<ExplicitLayout>(&form_); }

  // InvalidArgument unless the layout fits: one entry per dimension, known axes, no axis twice,
  // even parts under kExact; or as many explicit tiles as slots, boxes of the right rank inside the
  // shape, not empty and disjoint within a slot. The message names layout, shape and axes or slot.
  absl::Status Validate(const Mesh& mesh, const Shape& shape) const;

  // The tile of every slot, in slot order. Validate must have passed. Cost: linear in slots.
  std::vector<Tile> Tiles(const Mesh& mesh, const Shape& shape) const;

  friend bool operator==(const Layout&, const Layout&) = default;

 private:
  std::variant<AxisLayout, ExplicitLayout> form_;
};

// The parts into which `rule` cuts a dimension of `length` over axes of `sizes` (major first): one
// interval per flattened coordinate, ascending, together the whole dimension; some may be empty.
// No axes give one part. kExact must divide. Nothing overflows for any length up to 2^63 - 1 and
// any sizes whose product fits in memory as a vector of parts.
std::vector<Interval> PartsOfDimension(UnevenRule rule, int64_t length,
                                       std::span<const int64_t> sizes);

// The grid that an axis layout lays over a tensor: per dimension its parts, and for every slot the
// part it holds.
struct TileGrid {
  std::vector<std::vector<Interval>> parts;        // [dimension][part]
  std::vector<std::vector<int32_t>> part_of_slot;  // [dimension][slot]
};
// `layout.axes()` must be set and Validate must have passed.
TileGrid GridOf(const Layout& layout, const Mesh& mesh, const Shape& shape);

absl::string_view UnevenRuleName(UnevenRule rule);  // "exact", "chunk", "nested_chunk", "balanced"
absl::StatusOr<UnevenRule> ParseUnevenRule(absl::string_view name);
std::string ToString(const Layout& layout);
absl::StatusOr<Layout> ParseLayout(absl::string_view text);
inline std::ostream& operator<<(std::ostream& out, const Layout& l) { return out << ToString(l); }

}  // namespace crossmesh
