#include "common/plan/id_sets.h"

#include "common/base/heap_bytes.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<int32_t> kPair = {1, 5}, kOne = {1}, kNone;

TEST(IdSetListTest, KeepsEverySetInTheOrderOfAdding) {
  IdSetList list;
  for (const auto& ids : {kPair, kNone, kOne, kPair}) list.Add(ids);
  EXPECT_EQ(list.size(), 4);
  EXPECT_THAT(list[0], ElementsAre(1, 5));
  EXPECT_THAT(list[1], IsEmpty());
  EXPECT_THAT(list[3], ElementsAre(1, 5));
  EXPECT_THAT(list.ids(), ElementsAre(1, 5, 1, 1, 5));
}

TEST(IdSetListTest, ReservesAllThatIsSaidAndNoMore) {
  IdSetList list;
  list.Reserve(2, 3);
  // Where each set begins, and where the last one ends.
  const int64_t reserved =
      AllocationBytes(3 * sizeof(int64_t)) + AllocationBytes(3 * sizeof(int32_t));
  EXPECT_EQ(list.heap_bytes(), reserved);
  list.Add(kPair);
  list.Add(kOne);
  EXPECT_EQ(list.heap_bytes(), reserved);
}

TEST(IdSetsTest, StoresEqualSetsOnce) {
  IdSets sets;
  EXPECT_EQ(sets.Intern(kPair), 0);
  EXPECT_EQ(sets.Intern(kOne), 1);
  EXPECT_EQ(sets.Intern(kNone), 2);
  EXPECT_EQ(sets.Intern(kPair), 0);
  EXPECT_EQ(sets.size(), 3);
  EXPECT_THAT(sets[0], ElementsAre(1, 5));
  EXPECT_THAT(sets[2], IsEmpty());
}

TEST(IdSetsTest, KeepNoTableUntilThereIsASet) {
  EXPECT_EQ(IdSets().heap_bytes(), AllocationBytes(sizeof(IdSetList)) + IdSetList().heap_bytes());
}

TEST(IdSetsTest, FindsWhatWasInternedAfterAMoveAsWell) {
  IdSets sets;
  sets.Intern(kPair);
  sets.Intern(kNone);
  const IdSets moved = std::move(sets);
  EXPECT_EQ(moved.Find(kPair), 0);
  EXPECT_EQ(moved.Find(kNone), 1);
  EXPECT_EQ(moved.Find(kOne), std::nullopt);
}

}  // namespace
}  // namespace crossmesh
