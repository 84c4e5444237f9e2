#include "worker/executor/blocked_tile.h"

#include "common/mesh/box.h"
#include "common/mesh/layout.h"
#include "common/testing/status_matchers.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

BlockedTile TileOf(const std::vector<std::string>& boxes) {
  Tile tile;
  for (const std::string& text : boxes) {
    const absl::StatusOr<Box> box = ParseBox(text);
    EXPECT_OK(box);
    tile.push_back(*box);
  }
  return BlockedTile(tile);
}

void ExpectPlace(const BlockedTile& tile, int64_t element, const BlockedTile::Place& expected) {
  const BlockedTile::Place found = tile.At(element);
  EXPECT_EQ(found.block, expected.block) << element;
  EXPECT_EQ(found.row_left, expected.row_left) << element;
  EXPECT_EQ(found.block_row_left, expected.block_row_left) << element;
}

TEST(BlockedTileTest, BlocksAreCountedRowByRow) {
  const BlockedTile tile = TileOf({"[0:200, 0:300]"});
  EXPECT_EQ(tile.blocks(), 6);
  ExpectPlace(tile, 0, {.block = 0, .row_left = 300, .block_row_left = 128});
  ExpectPlace(tile, 299, {.block = 2, .row_left = 1, .block_row_left = 1});
  ExpectPlace(tile, 127 * 300 + 130, {.block = 1, .row_left = 170, .block_row_left = 126});
  ExpectPlace(tile, 128 * 300 + 256, {.block = 5, .row_left = 44, .block_row_left = 44});
}

TEST(BlockedTileTest, OneElementMoreBeginsABlock) {
  EXPECT_EQ(TileOf({"[0:128, 0:128]"}).blocks(), 1);
  EXPECT_EQ(TileOf({"[0:1, 0:1]"}).blocks(), 1);
  const BlockedTile tile = TileOf({"[0:129, 0:257]"});
  EXPECT_EQ(tile.blocks(), 6);
  ExpectPlace(tile, 127 * 257 + 127, {.block = 0, .row_left = 130, .block_row_left = 1});
  ExpectPlace(tile, 128 * 257 + 256, {.block = 5, .row_left = 1, .block_row_left = 1});
}

TEST(BlockedTileTest, EveryMatrixHasBlocksOfItsOwn) {
  const BlockedTile tile = TileOf({"[3:5, 1:2, 128:258, 0:10]"});
  ASSERT_EQ(tile.stacks().size(), 1);
  EXPECT_EQ(tile.stacks()[0].matrices, 2);
  EXPECT_EQ(tile.blocks(), 4);
  ExpectPlace(tile, 129 * 10, {.block = 1, .row_left = 10, .block_row_left = 10});
  ExpectPlace(tile, 130 * 10 + 3, {.block = 2, .row_left = 7, .block_row_left = 7});
}

TEST(BlockedTileTest, BoxesFollowEachOtherAndEmptyOnesHaveNoBlocks) {
  const BlockedTile tile = TileOf({"[0:128, 0:256]", "[0:0, 0:256]", "[256:300, 0:128]"});
  ASSERT_EQ(tile.stacks().size(), 2);
  EXPECT_EQ(tile.blocks(), 3);
  ExpectPlace(tile, 128 * 256, {.block = 2, .row_left = 128, .block_row_left = 128});
}

TEST(BlockedTileTest, ATileWithoutElementsHasNoBlocks) {
  EXPECT_EQ(TileOf({}).blocks(), 0);
  EXPECT_EQ(TileOf({"[0:0, 0:128]"}).blocks(), 0);
}

}  // namespace
}  // namespace crossmesh
