#include "worker/gpu/kernels/kernel_launches.h"

#include "common/plan/testing/random_source.h"

#include <cstdint>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(KernelBoxListTest, PiecesOfOneSizeAtOneDistanceAreOneBox) {
  KernelBoxList list;
  for (uint64_t row = 0; row < 5; ++row) list.Append(1000 + 300 * row, 100);
  ASSERT_EQ(list.boxes().size(), 1);
  EXPECT_EQ(list.boxes()[0].rows, 5);
  EXPECT_EQ(list.boxes()[0].row_bytes, 100);
  EXPECT_EQ(list.boxes()[0].pitch_bytes, 300);
  EXPECT_EQ(list.packed_bytes(), 500);
}

TEST(KernelBoxListTest, PiecesSideBySideAreOneRow) {
  KernelBoxList list;
  list.Append(1000, 10);
  list.Append(1010, 20);
  list.Append(1030, 30);
  ASSERT_EQ(list.boxes().size(), 1);
  EXPECT_EQ(list.boxes()[0].row_bytes, 60);
}

TEST(KernelBoxListTest, AnotherSizeOrDistanceBeginsABox) {
  KernelBoxList list;
  list.Append(1000, 100);
  list.Append(1300, 100);
  list.Append(1700, 100);
  list.Append(1900, 50);
  ASSERT_EQ(list.boxes().size(), 3);
  EXPECT_EQ(list.boxes()[1].packed_offset, 200);
  EXPECT_EQ(list.boxes()[2].packed_offset, 300);
}

TEST(KernelBoxListTest, BoxesOfConvertedElementsAreWhereTheirPackedBytesAre) {
  KernelBoxList list;
  list.Append(1000, 100, 50);
  list.Append(1300, 100, 50);
  list.Append(1700, 40, 20);
  ASSERT_EQ(list.boxes().size(), 2);
  EXPECT_EQ(list.boxes()[0].row_bytes, 100);
  EXPECT_EQ(list.boxes()[1].packed_offset, 100);
  EXPECT_EQ(list.packed_bytes(), 120);
}

TEST(KernelBoxListTest, RowsWithTheSameFactorsAreOneBoxAndRowsStill) {
  KernelBoxList list;
  // Of a matrix with 300 columns, the last and first rows of blocks; and of its left half.
  list.AppendQuantized(1000, 300, 50'000);
  list.AppendQuantized(1600, 300, 50'000);
  list.AppendQuantized(2200, 300, 50'012);
  list.AppendQuantized(2800, 256, 50'012);
  ASSERT_EQ(list.boxes().size(), 3);
  EXPECT_EQ(list.boxes()[0].rows, 2);
  EXPECT_EQ(list.boxes()[0].row_bytes, 600);
  EXPECT_EQ(list.boxes()[0].pitch_bytes, 600);
  EXPECT_EQ(list.boxes()[0].factors_address, 50'000);
  EXPECT_EQ(list.boxes()[1].rows, 1);
  EXPECT_EQ(list.boxes()[1].packed_offset, 600);
  EXPECT_EQ(list.boxes()[1].factors_address, 50'012);
  EXPECT_EQ(list.boxes()[2].row_bytes, 512);
  EXPECT_EQ(list.boxes()[2].packed_offset, 900);
  EXPECT_EQ(list.packed_bytes(), 1156);
}

TEST(KernelBoxListTest, RowsThatNoCursorCanCountAreCutBetweenScaleBlocks) {
  KernelBoxList list;
  constexpr int64_t kElements = (int64_t{1} << 29) + 7;
  list.AppendQuantized(1 << 20, kElements, 1 << 10);
  ASSERT_EQ(list.boxes().size(), 2);
  EXPECT_EQ(list.boxes()[0].row_bytes, int64_t{1} << 30);
  EXPECT_EQ(list.boxes()[1].address, (uint64_t{1} << 20) + (uint64_t{1} << 30));
  EXPECT_EQ(list.boxes()[1].row_bytes, 14);
  EXPECT_EQ(list.boxes()[1].packed_offset, int64_t{1} << 29);
  EXPECT_EQ(list.boxes()[1].factors_address, (1 << 10) + (uint64_t{1} << 29) / 128 * 4);
  EXPECT_EQ(list.packed_bytes(), kElements);
}

TEST(KernelBoxListTest, BoxesAreTheBytesOfThePiecesInOrder) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    KernelBoxList list;
    std::vector<uint64_t> expected;
    uint64_t address = 10'000;
    int64_t bytes = random.Between(1, 4);
    int64_t distance = random.Between(-20, 20);
    for (int i = 0; i < 60; ++i) {
      if (random.OneIn(8)) distance = random.Between(-20, 20);
      if (random.OneIn(8)) bytes = random.Between(1, 4);
      address += random.OneIn(4) ? bytes : distance;
      list.Append(address, bytes);
      for (int64_t at = 0; at < bytes; ++at) expected.push_back(address + at);
    }
    std::vector<uint64_t> found;
    for (const KernelBox& box : list.boxes()) {
      EXPECT_EQ(box.packed_offset, std::ssize(found));
      for (int64_t row = 0; row < box.rows; ++row) {
        for (int64_t at = 0; at < box.row_bytes; ++at) {
          found.push_back(box.address + row * box.pitch_bytes + at);
        }
      }
    }
    ASSERT_EQ(found, expected);
    EXPECT_EQ(list.packed_bytes(), std::ssize(expected));
  }
}

TEST(KernelLaunchesTest, LeavesAreCountedFromTheBeginningOfTheRange) {
  EXPECT_EQ(LeavesOf(5, 5), 0);
  EXPECT_EQ(LeavesOf(5, 6), 1);
  EXPECT_EQ(LeavesOf(5, 5 + 65536), 1);
  EXPECT_EQ(LeavesOf(5, 6 + 65536), 2);
}

}  // namespace
}  // namespace crossmesh
