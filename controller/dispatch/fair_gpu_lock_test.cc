#include "controller/dispatch/fair_gpu_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(FairGpuLockTest, UsersOfOtherGpusRunSideBySide) {
  FairGpuLock turns;
  EXPECT_TRUE(turns.Enter("x", {"a", "b"}));
  EXPECT_TRUE(turns.Enter("y", {"c", "d"}));
  EXPECT_THAT(turns.Leave("x"), IsEmpty());
}

TEST(FairGpuLockTest, UsersOfTheSameGpusFollowEachOther) {
  FairGpuLock turns;
  EXPECT_TRUE(turns.Enter("x", {"a", "b"}));
  EXPECT_FALSE(turns.Enter("y", {"b", "c"}));
  EXPECT_FALSE(turns.Enter("z", {"a", "b"}));
  EXPECT_THAT(turns.Leave("x"), ElementsAre("y"));
  EXPECT_THAT(turns.Leave("x"), IsEmpty());
  EXPECT_THAT(turns.Leave("y"), ElementsAre("z"));
}

TEST(FairGpuLockTest, NobodyOvertakesWhoWaitsForAGpuOfTheirs) {
  FairGpuLock turns;
  EXPECT_TRUE(turns.Enter("x", {"a"}));
  EXPECT_FALSE(turns.Enter("y", {"a", "b"}));
  EXPECT_FALSE(turns.Enter("z", {"b"}));
  EXPECT_THAT(turns.Leave("x"), ElementsAre("y"));
}

TEST(FairGpuLockTest, WhoGivesUpKeepsNobodyWaiting) {
  FairGpuLock turns;
  EXPECT_TRUE(turns.Enter("x", {"a"}));
  EXPECT_FALSE(turns.Enter("y", {"a", "b"}));
  EXPECT_FALSE(turns.Enter("z", {"b"}));
  EXPECT_THAT(turns.Leave("y"), ElementsAre("z"));
  EXPECT_THAT(turns.Leave("x"), IsEmpty());
}

TEST(FairGpuLockTest, OneDepartureMayGiveSeveralTheirTurn) {
  FairGpuLock turns;
  EXPECT_TRUE(turns.Enter("x", {"a", "b"}));
  EXPECT_FALSE(turns.Enter("y", {"a"}));
  EXPECT_FALSE(turns.Enter("z", {"b"}));
  EXPECT_THAT(turns.Leave("x"), ElementsAre("y", "z"));
}

}  // namespace
}  // namespace crossmesh
