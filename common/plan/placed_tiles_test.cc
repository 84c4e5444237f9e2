#include "common/plan/placed_tiles.h"

#include "common/testing/status_matchers.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/inlined_vector.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Explicit tiles over as many slots, of the devices 0, 1, ...
struct Explicit {
  explicit Explicit(std::vector<Tile> slots)
      : devices(slots.size()), placement{{}, Layout(ExplicitLayout{std::move(slots)})} {
    std::iota(devices.begin(), devices.end(), 0);
  }

  absl::StatusOr<PlacedTiles> Placed(int rank) {
    return PlacedTiles::Create(placement, devices, rank, sets);
  }

  std::vector<DeviceRank> devices;
  const Placement placement;
  IdSets sets;
};

// "0@0 2@1": where each part begins.
std::string TextOf(const std::vector<Cut>& cuts) {
  std::string text;
  for (const Cut& cut : cuts) {
    absl::StrAppend(&text, text.empty() ? "" : " ", cut.begin, "@", cut.part);
  }
  return text;
}

// One element of each of so many parts in every dimension, as few boxes as may be.
Tile Diagonal(const std::vector<int64_t>& parts) {
  Tile tile;
  for (int64_t i = 0; i < *std::ranges::max_element(parts); ++i) {
    absl::InlinedVector<Interval, 4> intervals;
    for (const int64_t count : parts) intervals.push_back({i % count, i % count + 1});
    tile.emplace_back(std::move(intervals));
  }
  return tile;
}

TEST(PlacedTilesTest, ExplicitBoxesCutAtTheirEdges) {
  Explicit tiles({{Box({{3, 4}}), Box({{2, 3}})}, {Box({{3, 5}})}});
  ASSERT_OK_AND_ASSIGN(const PlacedTiles placed, tiles.Placed(1));
  EXPECT_EQ(TextOf(placed.Cuts(0, 7)), "0@0 2@1 3@2 4@3 5@4");
  EXPECT_EQ(TextOf(placed.Cuts(0, 6)), "0@0 2@1 3@2 4@3 5@4");
  EXPECT_EQ(TextOf(placed.Cuts(0, 5)), "0@0 2@1 3@2 4@3");
  ASSERT_EQ(placed.set_of_tile().size(), 5u);
  EXPECT_THAT(tiles.sets[placed.set_of_tile()[0]], IsEmpty());
  EXPECT_THAT(tiles.sets[placed.set_of_tile()[1]], ElementsAre(0));
  EXPECT_THAT(tiles.sets[placed.set_of_tile()[2]], ElementsAre(0, 1));
  EXPECT_THAT(tiles.sets[placed.set_of_tile()[3]], ElementsAre(1));
  EXPECT_THAT(tiles.sets[placed.set_of_tile()[4]], IsEmpty());
}

TEST(PlacedTilesTest, EmptyBoxesCutNothing) {
  Explicit tiles({{Box({{2, 4}, {0, 3}}), Box({{3, 3}, {0, 1}})}});
  ASSERT_OK_AND_ASSIGN(const PlacedTiles placed, tiles.Placed(2));
  EXPECT_EQ(TextOf(placed.Cuts(0, 6)), "0@0 2@1 4@2");
  EXPECT_EQ(TextOf(placed.Cuts(1, 3)), "0@0");
}

TEST(PlacedTilesTest, SetsAscendInWhateverOrderSlotsHaveTheirDevices) {
  const std::vector<DeviceRank> slots = {2, 1, 0};
  for (const char* layout : {"[-]", "{[0:4]; [0:4]; [0:4]}"}) {
    const Placement placement{*ParseMesh("x=3 on a.2,a.1,a.0"), *ParseLayout(layout)};
    IdSets sets;
    ASSERT_OK_AND_ASSIGN(const PlacedTiles placed, PlacedTiles::Create(placement, slots, 1, sets));
    EXPECT_THAT(sets[placed.set_of_tile()[0]], ElementsAre(0, 1, 2)) << layout;
  }
}

// The grid has one more part in each dimension than its boxes: after the last edge.
TEST(PlacedTilesTest, AGridOfMoreCellsThanTheLimitIsRefused) {
  static_assert(5 * 53 * 157 * 1613 == PlacedTiles::kTuplesMax + 1);
  EXPECT_THAT(Explicit({Diagonal({4, 52, 156, 1612})}).Placed(4),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "grid of the tiles' edges: expected at most 67108864 cells, found more"));
}

TEST(PlacedTilesTest, AGridOfAsManyCellsAsThereMayBeIsRefusedForWhatIsInItAlone) {
  static_assert(8192 * 8192 == PlacedTiles::kTuplesMax);
  const std::string painted =
      "cells of all explicit boxes together: expected at most 67108864, found more";
  EXPECT_THAT(
      Explicit({Diagonal({8191, 8191}), {Box({{0, 8191}, {0, 8191}})}, {Box({{0, 2}, {0, 8191}})}})
          .Placed(2),
      StatusIs(absl::StatusCode::kResourceExhausted, painted));
}

// 8,192 slots with as many cells each, of which one has them box by box, and one with a single
// cell.
std::vector<Tile> OneCellTooMany() {
  static_assert(8192 * 8192 == PlacedTiles::kPaintedMax);
  std::vector<Tile> tiles(8192, {Box({{0, 8192}})});
  tiles[0] = Diagonal({8192});
  tiles.push_back({Box({{0, 1}})});
  return tiles;
}

TEST(PlacedTilesTest, ExplicitBoxesMayHaveAsManyCellsAsTheLimit) {
  std::vector<Tile> tiles = OneCellTooMany();
  EXPECT_THAT(Explicit(tiles).Placed(1),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("found more")));
  tiles.pop_back();
  Explicit fitting(std::move(tiles));
  ASSERT_OK_AND_ASSIGN(const PlacedTiles placed, fitting.Placed(1));
  EXPECT_EQ(fitting.sets[placed.set_of_tile()[0]].size(), 8192u);
}

}  // namespace
}  // namespace crossmesh
