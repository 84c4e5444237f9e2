// Properties of axis layouts on random meshes, shapes and rules.

#include "common/mesh/layout.h"
#include "common/mesh/testing/random_values.h"
#include "common/testing/status_matchers.h"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr uint64_t kCases = 2000;

// The part of axis coordinate after axis coordinate, as PyTorch's DTensor cuts; written apart from
// PartsOfDimension, from the definition.
Interval NestedChunkOf(const Mesh& mesh, int64_t slot, const std::vector<std::string>& axes,
                       int64_t length) {
  Interval part = {0, length};
  for (const std::string& name : axes) {
    const int axis = *mesh.FindAxis(name);
    const int64_t size = mesh.axes()[axis].size;
    const int64_t chunk = (part.length() + size - 1) / size;
    const int64_t i = mesh.Coordinate(slot, axis);
    part = {std::min(part.begin + i * chunk, part.end),
            std::min(part.begin + (i + 1) * chunk, part.end)};
  }
  return part;
}

// The slot's coordinates on the axes that cut some dimension.
std::vector<int64_t> CuttingCoordinates(const Mesh& mesh, const AxisLayout& layout, int64_t slot) {
  std::vector<int64_t> coordinates;
  for (const auto& axes : layout.dimensions) {
    for (const auto& name : axes) {
      coordinates.push_back(mesh.Coordinate(slot, *mesh.FindAxis(name)));
    }
  }
  return coordinates;
}

TEST(LayoutPropertyTest, DistinctTilesAreDisjointAndCoverTheTensor) {
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    RandomValues random(seed);
    const Mesh mesh = random.RandomMesh();
    const Shape shape = random.RandomShape(3, 20);
    const Layout layout = random.RandomAxisLayout(mesh, shape);
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", ToString(layout), " of ", ToString(shape),
                              " on ", ToString(mesh)));
    ASSERT_OK(layout.Validate(mesh, shape));
    const std::vector<Tile> tiles = layout.Tiles(mesh, shape);

    std::map<std::vector<int64_t>, Tile> tile_at;
    for (int64_t slot = 0; slot < mesh.slots(); ++slot) {
      const auto [found, inserted] =
          tile_at.emplace(CuttingCoordinates(mesh, *layout.axes(), slot), tiles[slot]);
      ASSERT_EQ(found->second, tiles[slot]) << "replicas differ at slot " << slot;
    }
    std::vector<Box> boxes;
    int64_t volume = 0;
    for (const auto& [coordinates, tile] : tile_at) {
      ASSERT_LE(tile.size(), 1U);
      for (const Box& box : tile) {
        ASSERT_FALSE(box.empty());
        ASSERT_TRUE(shape.FullBox().Contains(box));
        for (const Box& other : boxes) ASSERT_EQ(Intersect(box, other), std::nullopt);
        boxes.push_back(box);
        volume += box.volume();
      }
    }
    ASSERT_EQ(volume, shape.elements());
  }
}

TEST(LayoutPropertyTest, NestedChunkCutsAxisByAxis) {
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    RandomValues random(seed);
    const Mesh mesh = random.RandomMesh();
    const Shape shape = random.RandomShape(3, 40);
    AxisLayout axes = *random.RandomAxisLayout(mesh, shape).axes();
    axes.rule = UnevenRule::kNestedChunk;
    const Layout layout(axes);
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", ToString(layout), " of ", ToString(shape),
                              " on ", ToString(mesh)));
    const TileGrid grid = GridOf(layout, mesh, shape);
    for (int d = 0; d < shape.rank(); ++d) {
      for (int64_t slot = 0; slot < mesh.slots(); ++slot) {
        ASSERT_EQ(grid.parts[d][grid.part_of_slot[d][slot]],
                  NestedChunkOf(mesh, slot, axes.dimensions[d], shape[d]))
            << "dimension " << d << ", slot " << slot;
      }
    }
  }
}

TEST(LayoutPropertyTest, RulesAgreeWithTheirFormulas) {
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    RandomValues random(seed);
    const int64_t n = random.Between(1, 12);
    const int64_t length = random.Between(0, 50);
    const std::vector<Interval> chunks =
        PartsOfDimension(UnevenRule::kChunk, length, std::vector<int64_t>{n});
    const std::vector<Interval> balanced =
        PartsOfDimension(UnevenRule::kBalanced, length, std::vector<int64_t>{n});
    const int64_t c = (length + n - 1) / n;
    for (int64_t i = 0; i < n; ++i) {
      const Interval chunk = {std::min(i * c, length), std::min((i + 1) * c, length)};
      ASSERT_EQ(chunks[i], chunk) << "seed " << seed;
      ASSERT_EQ(balanced[i].length(), length / n + (i < length % n ? 1 : 0)) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace crossmesh
