#include "controller/network/pair_table.h"

#include "controller/network/id_sets.h"

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

TEST(IdSetsTest, StoresEqualSetsOnce) {
  IdSets sets;
  const std::vector<int32_t> a = {1, 5}, b = {1}, none;
  EXPECT_EQ(sets.Intern(a), 0);
  EXPECT_EQ(sets.Intern(b), 1);
  EXPECT_EQ(sets.Intern(none), 2);
  EXPECT_EQ(sets.Intern(a), 0);
  EXPECT_EQ(sets.size(), 3);
  EXPECT_EQ(sets[0][1], 5);
  EXPECT_TRUE(sets[2].empty());
}

}  // namespace
}  // namespace crossmesh
