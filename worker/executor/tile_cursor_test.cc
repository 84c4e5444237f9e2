#include "worker/executor/tile_cursor.h"

#include "common/base/check.h"
#include "common/plan/plan.h"
#include "common/plan/slicing.h"
#include "common/plan/testing/tables.h"
#include "worker/executor/leaf_checksum.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::SizeIs;

// A class of a hand-written table, and memory for the tiles of one device.
class OneClass {
 public:
  OneClass(const std::vector<TensorText>& texts, Side side, const std::string& device,
           DeviceRank holder, DeviceRank receiver)
      : tensors_(TableOf(texts)),
        slicing_(*Slicing::Create(tensors_)),
        map_(tensors_, slicing_, side, *tensors_.FindDevice(*ParseDevice(device))) {
    for (ClassIndex c = 0; c < std::ssize(slicing_.classes()); ++c) {
      if (slicing_.holders(c)[0] == holder && slicing_.receivers(c)[0] == receiver) class_ = c;
    }
    CHECK(class_ != kNoClass);
    // Tiles one after the other, so that memory goes on where a tile ends.
    int64_t bytes = 0;
    for (const int32_t group : tensors_.group_of_tensor()) bytes += map_.tile_bytes(group);
    memory_.resize(bytes);
    for (size_t i = 0; i < memory_.size(); ++i) memory_[i] = static_cast<std::byte>(i * 7 + 1);
    int64_t begin = 0;
    for (const int32_t group : tensors_.group_of_tensor()) {
      tiles_.tensor.push_back(memory_.data() + begin);
      begin += map_.tile_bytes(group);
    }
  }

  int64_t bytes() const { return slicing_.classes()[class_].bytes; }
  TileCursor::Range all() const { return {.slice_class = class_, .offset = 0, .bytes = bytes()}; }
  TileCursor Cursor() const { return TileCursor(map_, tiles_); }
  std::vector<std::byte>& memory() { return memory_; }

 private:
  const TensorTable tensors_;
  const Slicing slicing_;
  const TileMap map_;
  ClassIndex class_ = kNoClass;
  std::vector<std::byte> memory_;
  BoundTiles tiles_;
};

// A tensor of bytes on a.0, of whose rows b.0 and b.1 get half each.
TensorText Halved(int rows, int row_bytes) {
  return TensorOf(
      absl::StrCat("[", rows, ", ", row_bytes, "]: x=1 on a.0 [-, -] -> y=2 on b.0-1 [-, y]"),
      DataType::kU8);
}

// What a.0 has for b.0: a piece for each row.
OneClass Pieces(const std::vector<TensorText>& texts) {
  return OneClass(texts, Side::kSource, "a.0", 0, 1);
}

TEST(TileCursorTest, ARangeIsFoundInAsManyPiecesAsMayBe) {
  OneClass tiles = Pieces({Halved(4, 2)});
  TileCursor cursor = tiles.Cursor();
  std::vector<iovec> pieces(9);  // of another range
  EXPECT_FALSE(cursor.FindPieces(tiles.all(), 3, pieces));
  ASSERT_TRUE(cursor.FindPieces(tiles.all(), 4, pieces));
  ASSERT_THAT(pieces, SizeIs(4));
  for (int row = 0; row < 4; ++row) {
    EXPECT_EQ(pieces[row].iov_base, tiles.memory().data() + 2 * row);
    EXPECT_EQ(pieces[row].iov_len, 1);
  }
}

TEST(TileCursorTest, WhereMemoryGoesOnAPieceDoesToo) {
  const std::string whole = "[4, 2]: x=1 on a.0 [-, -] -> y=1 on b.0 [-, -]";
  OneClass tiles = Pieces({TensorOf(whole, DataType::kU8), TensorOf(whole, DataType::kU8)});
  TileCursor cursor = tiles.Cursor();
  std::vector<iovec> pieces;
  ASSERT_TRUE(cursor.FindPieces(tiles.all(), 1, pieces));
  ASSERT_THAT(pieces, SizeIs(1));
  EXPECT_EQ(pieces[0].iov_base, tiles.memory().data());
  EXPECT_EQ(pieces[0].iov_len, 16);
}

// Of 64 pieces, 64 bytes have been found; half of their share of 128 pieces in 256 bytes.
TEST(TileCursorTest, ABeginningOfHalfTheAverageIsLookedBeyond) {
  OneClass tiles = Pieces({Halved(64, 2), Halved(64, 6)});
  ASSERT_EQ(tiles.bytes(), 256);
  TileCursor cursor = tiles.Cursor();
  std::vector<iovec> pieces;
  EXPECT_TRUE(cursor.FindPieces(tiles.all(), 128, pieces));
  EXPECT_THAT(pieces, SizeIs(128));
}

TEST(TileCursorTest, ABeginningOfLessIsNot) {
  OneClass tiles = Pieces({Halved(64, 2), Halved(49, 8)});
  ASSERT_EQ(tiles.bytes(), 260);
  TileCursor cursor = tiles.Cursor();
  std::vector<iovec> pieces;
  EXPECT_FALSE(cursor.FindPieces(tiles.all(), 128, pieces)) << "65 bytes were to be found";
  EXPECT_TRUE(cursor.FindPieces(tiles.all(), 132, pieces));
  EXPECT_THAT(pieces, SizeIs(64 + 49));
}

TEST(TileCursorTest, GathersAndScattersEveryByte) {
  OneClass tiles = Pieces({Halved(4, 2), Halved(3, 4)});
  TileCursor cursor = tiles.Cursor();
  std::vector<std::byte> packed(tiles.bytes());
  cursor.Gather(tiles.all(), packed);
  for (int row = 0; row < 4; ++row) EXPECT_EQ(packed[row], tiles.memory()[2 * row]);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(packed[4 + i], tiles.memory()[8 + 4 * (i / 2) + i % 2]) << i;
  }
  std::ranges::fill(packed, std::byte{0xAB});
  cursor.Scatter(tiles.all(), packed);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(tiles.memory()[i] == std::byte{0xAB}, i % 2 == 0) << i;
  }
}

// b.0 and c.0 get the same tensor, whose halves a.0-1 have: of the first half, each row is a piece.
OneClass Received(const std::string& device) {
  return OneClass({TensorOf("[4, 2]: y=2 on a.0-1 [-, y] -> x=2 on b.0,c.0 [-, -]", DataType::kU8)},
                  Side::kDestination, device, 0, 2);
}

TEST(TileCursorTest, CopiesAllPiecesAndNoOtherByte) {
  for (const auto next_use : {TileCursor::NextUse::kSoon, TileCursor::NextUse::kLater}) {
    OneClass from = Received("b.0");
    OneClass to = Received("c.0");
    std::ranges::fill(to.memory(), std::byte{0});
    TileCursor source = from.Cursor();
    TileCursor destination = to.Cursor();
    EXPECT_EQ(source.CopyTo(destination, from.all(), next_use), 4);
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(to.memory()[i], i % 2 == 0 ? from.memory()[i] : std::byte{0}) << i;
    }
  }
}

TEST(TileCursorTest, WhatIsInPlaceIsNotCopied) {
  OneClass tiles = Received("b.0");
  TileCursor source = tiles.Cursor();
  TileCursor destination = tiles.Cursor();
  EXPECT_EQ(source.CopyTo(destination, tiles.all(), TileCursor::NextUse::kSoon), 0);
}

TEST(TileCursorTest, HashesLeavesAsTheyArePacked) {
  // Two leaves and a bit, in pieces; and the same in one piece.
  constexpr int kRows = 1000;
  OneClass tiles = Pieces({Halved(kRows, 2 * 140)});
  TileCursor cursor = tiles.Cursor();
  std::vector<std::byte> packed(tiles.bytes());
  cursor.Gather(tiles.all(), packed);
  std::vector<std::byte> scratch(Plan::kLeafBytes);
  std::vector<uint64_t> hashes(3);
  cursor.HashLeaves(tiles.all(), scratch, hashes);
  for (size_t leaf = 0; leaf < 3; ++leaf) {
    const size_t begin = leaf * Plan::kLeafBytes;
    const size_t bytes = std::min<size_t>(Plan::kLeafBytes, packed.size() - begin);
    EXPECT_EQ(hashes[leaf], HashLeaf(std::span(packed).subspan(begin, bytes))) << leaf;
  }
}

}  // namespace
}  // namespace crossmesh
