#include "controller/catalog/plan_cache.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

Digest Key(int i) { return Digest::Of(std::to_string(i)); }
std::shared_ptr<const int> Value(int i) { return std::make_shared<const int>(i); }

TEST(PlanCache, FindsWhatWasInserted) {
  PlanCache<int> cache(10);
  EXPECT_EQ(cache.Find(Key(1)), nullptr);
  cache.Insert(Key(1), Value(1), 1);
  ASSERT_NE(cache.Find(Key(1)), nullptr);
  EXPECT_EQ(*cache.Find(Key(1)), 1);
}

TEST(PlanCache, LetsTheLeastRecentlyUsedGoFirst) {
  PlanCache<int> cache(2);
  cache.Insert(Key(1), Value(1), 1);
  cache.Insert(Key(2), Value(2), 1);
  cache.Find(Key(1));
  cache.Insert(Key(3), Value(3), 1);
  EXPECT_NE(cache.Find(Key(1)), nullptr);
  EXPECT_EQ(cache.Find(Key(2)), nullptr);
  EXPECT_NE(cache.Find(Key(3)), nullptr);
}

TEST(PlanCache, KeepsWithinItsWeight) {
  PlanCache<int> cache(10);
  for (int i = 0; i < 100; ++i) cache.Insert(Key(i), Value(i), 3);
  EXPECT_EQ(cache.size(), 3);
}

TEST(PlanCache, RefusesWhatIsHeavierThanAllOfIt) {
  PlanCache<int> cache(10);
  cache.Insert(Key(1), Value(1), 5);
  cache.Insert(Key(2), Value(2), 11);
  EXPECT_EQ(cache.Find(Key(2)), nullptr);
  EXPECT_NE(cache.Find(Key(1)), nullptr);
}

TEST(PlanCache, AValueInsertedAgainReplacesTheOld) {
  PlanCache<int> cache(10);
  cache.Insert(Key(1), Value(1), 5);
  cache.Insert(Key(1), Value(2), 5);
  EXPECT_EQ(*cache.Find(Key(1)), 2);
  EXPECT_EQ(cache.size(), 1);
}

}  // namespace
}  // namespace crossmesh
