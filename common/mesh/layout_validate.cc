// Does a layout fit a mesh and a shape?

#include "common/base/status_macros.h"
#include "common/mesh/layout.h"

#include <algorithm>
#include <optional>

#include <absl/container/flat_hash_set.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

// Explicit layouts can be very long; the head is enough to find one again.
std::string Shown(const Layout& layout) {
  constexpr size_t kBytesMax = 200;
  std::string text = ToString(layout);
  if (text.size() > kBytesMax) text = absl::StrCat(text.substr(0, kBytesMax), "...");
  return text;
}

absl::Status Misfit(const Layout& layout, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("layout ", Shown(layout), ": ", why));
}

// The axes are known and used once. Adds them to `used`.
absl::Status CheckAxesOfDimension(const Layout& layout, int dimension, const Mesh& mesh,
                                  absl::flat_hash_set<int>& used) {
  for (const std::string& name : layout.axes()->dimensions[dimension]) {
    const std::optional<int> axis = mesh.FindAxis(name);
    if (!axis) {
      return Misfit(layout,
                    absl::StrCat("dimension ", dimension, " names axis ", name,
                                 ", but the axes of the mesh are ", AxesToString(mesh.axes())));
    }
    if (!used.insert(*axis).second) {
      return Misfit(layout,
                    absl::StrCat("axis ", name, " is used twice, again on dimension ", dimension));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckDivides(const Layout& layout, int dimension, const Mesh& mesh,
                          const Shape& shape) {
  std::vector<Axis> axes;
  int64_t parts = 1;
  for (const std::string& name : layout.axes()->dimensions[dimension]) {
    axes.push_back(mesh.axes()[*mesh.FindAxis(name)]);
    parts *= axes.back().size;
  }
  if (shape[dimension] % parts == 0) return absl::OkStatus();
  return Misfit(layout, absl::StrCat("dimension ", dimension, " of ", ToString(shape), " has ",
                                     shape[dimension], " elements, which ", parts,
                                     " parts over axes ", AxesToString(axes),
                                     " do not divide; name an uneven rule (chunk, nested_chunk, "
                                     "balanced)"));
}

absl::Status ValidateAxes(const Layout& layout, const Mesh& mesh, const Shape& shape) {
  const AxisLayout& form = *layout.axes();
  if (form.dimensions.size() != static_cast<size_t>(shape.rank())) {
    return Misfit(layout, absl::StrCat("expected ", shape.rank(), " dimensions, those of shape ",
                                       ToString(shape), ", found ", form.dimensions.size()));
  }
  absl::flat_hash_set<int> used;
  for (int d = 0; d < shape.rank(); ++d) {
    RETURN_IF_ERROR(CheckAxesOfDimension(layout, d, mesh, used));
    if (form.rule == UnevenRule::kExact) RETURN_IF_ERROR(CheckDivides(layout, d, mesh, shape));
  }
  return absl::OkStatus();
}

// The dimension in which the most boxes begin at different places: the best one to sweep along.
int SweepDimension(const Tile& tile) {
  int best = 0;
  size_t most = 0;
  for (int d = 0; d < tile[0].rank(); ++d) {
    absl::flat_hash_set<int64_t> begins;
    for (const Box& box : tile) begins.insert(box[d].begin);
    if (begins.size() > most) {
      best = d;
      most = begins.size();
    }
  }
  return best;
}

// Two boxes of the tile that have an element in common, if there are any. The boxes are not empty
// and of one rank. Cost: n log n, and one step for each pair that shares a place on the sweep's
// dimension.
std::optional<std::pair<Box, Box>> FindOverlap(const Tile& tile) {
  if (tile.size() < 2) return std::nullopt;
  if (tile[0].rank() == 0) return std::pair(tile[0], tile[1]);
  const int d = SweepDimension(tile);
  std::vector<const Box*> boxes;
  for (const Box& box : tile) boxes.push_back(&box);
  std::sort(boxes.begin(), boxes.end(),
            [d](const Box* a, const Box* b) { return (*a)[d].begin < (*b)[d].begin; });
  for (size_t i = 0; i < boxes.size(); ++i) {
    for (size_t j = i + 1; j < boxes.size() && (*boxes[j])[d].begin < (*boxes[i])[d].end; ++j) {
      if (Intersect(*boxes[i], *boxes[j])) return std::pair(*boxes[i], *boxes[j]);
    }
  }
  return std::nullopt;
}

absl::Status CheckTile(const Layout& layout, size_t slot, const Shape& shape) {
  const Tile& tile = layout.tiles()->slots[slot];
  const Box full = shape.FullBox();
  for (const Box& box : tile) {
    const std::string found = absl::StrCat("slot ", slot, " holds ", ToString(box));
    if (box.rank() != shape.rank()) {
      return Misfit(layout, absl::StrCat(found, " of rank ", box.rank(), ", but shape ",
                                         ToString(shape), " has rank ", shape.rank()));
    }
    if (box.empty()) return Misfit(layout, absl::StrCat(found, ", which is empty; leave it out"));
    if (!full.Contains(box)) {
      return Misfit(layout, absl::StrCat(found, ", which is not inside ", ToString(full)));
    }
  }
  if (const auto overlap = FindOverlap(tile)) {
    return Misfit(layout, absl::StrCat("slot ", slot, " holds ", ToString(overlap->first), " and ",
                                       ToString(overlap->second), ", which overlap"));
  }
  return absl::OkStatus();
}

absl::Status ValidateTiles(const Layout& layout, const Mesh& mesh, const Shape& shape) {
  const size_t found = layout.tiles()->slots.size();
  if (found != static_cast<size_t>(mesh.slots())) {
    return Misfit(layout, absl::StrCat("expected tiles of ", mesh.slots(), " slots, those of mesh ",
                                       AxesToString(mesh.axes()), ", found ", found));
  }
  for (size_t slot = 0; slot < found; ++slot) {
    RETURN_IF_ERROR(CheckTile(layout, slot, shape));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Layout::Validate(const Mesh& mesh, const Shape& shape) const {
  return axes() != nullptr ? ValidateAxes(*this, mesh, shape) : ValidateTiles(*this, mesh, shape);
}

}  // namespace crossmesh
