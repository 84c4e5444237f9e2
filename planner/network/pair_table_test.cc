#include "planner/network/pair_table.h"

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(PairTableTest, CountsPairsWhetherManyOrFewAreUsed) {
  for (const int64_t expected : {int64_t{2}, int64_t{1'000'000}}) {
    PairTable table(1000, 1000, expected);
    ++table.At(3, 4);
    ++table.At(3, 4);
    ++table.At(4, 3);
    EXPECT_EQ(table.At(3, 4), 2);
    EXPECT_EQ(table.At(4, 3), 1);
    EXPECT_EQ(table.At(0, 999), 0);
  }
}

}  // namespace
}  // namespace crossmesh
