#include "common/mesh/layout.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

int64_t Product(std::span<const int64_t> sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= size;
  return product;
}

// Of `count` parts: those below `longer` have `length + 1` elements, the others `length`.
struct PartLengths {
  int64_t count = 0;
  int64_t length = 0;
  int64_t longer = 0;
};

// Appends the parts of `whole`, of these lengths or what is left; so no product is formed that
// could overflow.
void AppendParts(Interval whole, const PartLengths& lengths, std::vector<Interval>& parts) {
  int64_t begin = whole.begin;
  for (int64_t i = 0; i < lengths.count; ++i) {
    const int64_t wanted = i < lengths.longer ? lengths.length + 1 : lengths.length;
    const int64_t end = begin + std::min(wanted, whole.end - begin);
    parts.push_back({begin, end});
    begin = end;
  }
}

// ceil(L/n) each; the last ones shorter or empty.
void AppendChunks(Interval whole, int64_t count, std::vector<Interval>& parts) {
  const int64_t length = whole.length() / count + (whole.length() % count != 0 ? 1 : 0);
  AppendParts(whole, {.count = count, .length = length}, parts);
}

// The positions in mesh.axes() of the axes that cut a dimension, major first.
std::vector<int> AxesOfDimension(const std::vector<std::string>& names, const Mesh& mesh) {
  std::vector<int> axes;
  for (const std::string& name : names) {
    const std::optional<int> axis = mesh.FindAxis(name);
    CHECK(axis) << "axis " << name << " of a layout that was not validated";
    axes.push_back(*axis);
  }
  return axes;
}

std::vector<int64_t> SizesOf(std::span<const int> axes, const Mesh& mesh) {
  std::vector<int64_t> sizes;
  for (const int axis : axes) sizes.push_back(mesh.axes()[axis].size);
  return sizes;
}

std::vector<int32_t> PartOfSlot(std::span<const int> axes, const Mesh& mesh) {
  std::vector<int32_t> part_of_slot(mesh.slots());
  for (int64_t slot = 0; slot < mesh.slots(); ++slot) {
    int64_t part = 0;
    for (const int axis : axes) part = part * mesh.axes()[axis].size + mesh.Coordinate(slot, axis);
    part_of_slot[slot] = static_cast<int32_t>(part);
  }
  return part_of_slot;
}

}  // namespace

int64_t Volume(const Tile& tile) {
  int64_t volume = 0;
  for (const Box& box : tile) volume += box.volume();
  return volume;
}

std::vector<Interval> PartsOfDimension(UnevenRule rule, int64_t length,
                                       std::span<const int64_t> sizes) {
  const int64_t count = Product(sizes);
  CHECK(count >= 1 && length >= 0) << count << " parts of " << length;
  std::vector<Interval> parts;
  switch (rule) {
    case UnevenRule::kExact:
      CHECK_EQ(length % count, 0);
      AppendParts({0, length}, {.count = count, .length = length / count}, parts);
      break;
    case UnevenRule::kChunk:
      AppendChunks({0, length}, count, parts);
      break;
    case UnevenRule::kNestedChunk:
      parts = {{0, length}};
      for (const int64_t size : sizes) {
        std::vector<Interval> finer;
        finer.reserve(parts.size() * size);
        // As torch.distributed.tensor does it: each axis cuts what the one before it has left.
        for (const Interval& part : parts) AppendChunks(part, size, finer);
        parts = std::move(finer);
      }
      break;
    case UnevenRule::kBalanced:
      AppendParts({0, length}, {.count = count, .length = length / count, .longer = length % count},
                  parts);
      break;
  }
  return parts;
}

TileGrid GridOf(const Layout& layout, const Mesh& mesh, const Shape& shape) {
  CHECK(layout.axes() != nullptr) << layout;
  const AxisLayout& form = *layout.axes();
  CHECK_EQ(form.dimensions.size(), static_cast<size_t>(shape.rank()));
  TileGrid grid;
  for (int d = 0; d < shape.rank(); ++d) {
    const std::vector<int> axes = AxesOfDimension(form.dimensions[d], mesh);
    grid.parts.push_back(PartsOfDimension(form.rule, shape[d], SizesOf(axes, mesh)));
    grid.part_of_slot.push_back(PartOfSlot(axes, mesh));
  }
  return grid;
}

std::vector<Tile> Layout::Tiles(const Mesh& mesh, const Shape& shape) const {
  if (tiles() != nullptr) return tiles()->slots;
  const TileGrid grid = GridOf(*this, mesh, shape);
  std::vector<Tile> result(mesh.slots());
  for (int64_t slot = 0; slot < mesh.slots(); ++slot) {
    absl::InlinedVector<Interval, 4> intervals;
    for (int d = 0; d < shape.rank(); ++d) {
      intervals.push_back(grid.parts[d][grid.part_of_slot[d][slot]]);
    }
    Box box(std::move(intervals));
    if (!box.empty()) result[slot].push_back(std::move(box));
  }
  return result;
}

}  // namespace crossmesh
