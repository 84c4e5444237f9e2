#include "common/plan/class_table.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// Only a dense table keeps something before its first use.
bool IsDense(int64_t rows, int64_t columns, int64_t uses) {
  return ClassTable(rows, columns, uses).heap_bytes() > 0;
}

void ExpectFoundAtEveryEdge(int32_t rows, int32_t columns) {
  ClassTable table(rows, columns, 0);
  EXPECT_EQ(table.At(rows - 1, columns - 1), kNoClass);
  table.At(0, 0) = 10;
  table.At(1, 0) = 11;
  table.At(rows - 1, columns - 1) = 12;
  EXPECT_EQ(table.Find(0, 0), 10);
  EXPECT_EQ(table.Find(1, 0), 11);
  EXPECT_EQ(table.Find(0, 1), kNoClass);
  EXPECT_EQ(table.Find(rows - 1, columns - 1), 12);
  EXPECT_EQ(table.At(rows - 1, columns - 1), 12);
  // Not what a dense table has at the beginning of the next row.
  EXPECT_EQ(table.Find(0, columns), kNoClass);
  EXPECT_EQ(table.Find(rows, 0), kNoClass);
}

TEST(ClassTableTest, IsDenseWhereItIsNoLargerThanItsUse) {
  EXPECT_TRUE(IsDense(128, 128, 0));
  EXPECT_FALSE(IsDense(1, 128 * 128 + 1, 0));
  EXPECT_TRUE(IsDense(1, 128 * 128 + 400, 100));
  EXPECT_FALSE(IsDense(1, 128 * 128 + 401, 100));
}

TEST(ClassTableTest, IsNotDenseWithMorePlacesThanTheLimitHoweverMuchItIsUsed) {
  constexpr int64_t kManyUses = int64_t{1} << 22;
  constexpr int64_t kPlacesMax = int64_t{1} << 24;
  EXPECT_TRUE(IsDense(1, kPlacesMax + 128 * 128 - 4, kManyUses - 1));
  EXPECT_TRUE(IsDense(1, kPlacesMax, kManyUses));
  EXPECT_FALSE(IsDense(1, kPlacesMax + 1, kManyUses));
}

TEST(ClassTableTest, BothKindsFindWhatWasPutIn) {
  ASSERT_TRUE(IsDense(4, 3, 0));
  ExpectFoundAtEveryEdge(4, 3);
  ASSERT_FALSE(IsDense(1 << 20, 3, 0));
  ExpectFoundAtEveryEdge(1 << 20, 3);
}

}  // namespace
}  // namespace crossmesh
