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
  cache.Insert(Key(1), {Value(1), 1});
  ASSERT_NE(cache.Find(Key(1)), nullptr);
  EXPECT_EQ(*cache.Find(Key(1)), 1);
}

TEST(PlanCache, LetsTheLeastRecentlyUsedGoFirst) {
  PlanCache<int> cache(2);
  cache.Insert(Key(1), {Value(1), 1});
  cache.Insert(Key(2), {Value(2), 1});
  cache.Find(Key(1));
  cache.Insert(Key(3), {Value(3), 1});
  EXPECT_NE(cache.Find(Key(1)), nullptr);
  EXPECT_EQ(cache.Find(Key(2)), nullptr);
  EXPECT_NE(cache.Find(Key(3)), nullptr);
}

TEST(PlanCache, KeepsWithinItsWeight) {
  PlanCache<int> cache(10);
  for (int i = 0; i < 100; ++i) cache.Insert(Key(i), {Value(i), 3});
  EXPECT_EQ(cache.size(), 3);
}

TEST(PlanCache, RefusesWhatIsHeavierThanAllOfIt) {
  PlanCache<int> cache(10);
  cache.Insert(Key(1), {Value(1), 5});
  cache.Insert(Key(2), {Value(2), 11});
  EXPECT_EQ(cache.Find(Key(2)), nullptr);
  EXPECT_NE(cache.Find(Key(1)), nullptr);
}

TEST(PlanCache, AValueInsertedAgainReplacesTheOld) {
  PlanCache<int> cache(10);
  cache.Insert(Key(1), {Value(1), 5});
  cache.Insert(Key(1), {Value(2), 5});
  EXPECT_EQ(*cache.Find(Key(1)), 2);
  EXPECT_EQ(cache.size(), 1);
}

TEST(PlanCache, AValueThatHasGrownDrivesOthersOut) {
  PlanCache<int> cache(10);
  for (int i = 1; i <= 3; ++i) cache.Insert(Key(i), {Value(i), 3});
  cache.SetWeight(Key(2), 6);
  EXPECT_EQ(cache.Find(Key(1)), nullptr);
  EXPECT_NE(cache.Find(Key(2)), nullptr);
  EXPECT_EQ(cache.weight(), 9);
  cache.SetWeight(Key(2), 11);
  EXPECT_EQ(cache.Find(Key(2)), nullptr);
  EXPECT_NE(cache.Find(Key(3)), nullptr);
  cache.SetWeight(Key(2), 1);  // not there
  EXPECT_EQ(cache.weight(), 3);
}

TEST(PlanCache, WhatIsErasedIsLetGo) {
  PlanCache<int> cache(10);
  const auto value = Value(1);
  cache.Insert(Key(1), {value, 3});
  cache.Insert(Key(2), {Value(2), 3});
  cache.Erase(Key(1));
  cache.Erase(Key(1));
  EXPECT_EQ(value.use_count(), 1);
  EXPECT_EQ(cache.weight(), 3);
}

TEST(PlanCache, ValuesGoWithTheObjectsThatTheyWereMadeOf) {
  PlanCache<int> cache(10);
  cache.Insert(Key(1), {Value(1), 1, {7, 8}});
  cache.Insert(Key(2), {Value(2), 1, {8}});
  cache.Insert(Key(3), {Value(3), 1, {9}});
  cache.Insert(Key(4), {Value(4), 1, {8}});
  cache.EraseOf(8);
  EXPECT_EQ(cache.size(), 1);
  EXPECT_EQ(cache.weight(), 1);
  EXPECT_NE(cache.Find(Key(3)), nullptr);
}

// A value that says when it goes, in the midst of what drives it out, and asks the cache meanwhile.
TEST(PlanCache, ValuesGoAwayWithoutTheLock) {
  struct Asking {
    PlanCache<Asking>* cache;
    ~Asking() { EXPECT_EQ(cache->Find(Key(5)), nullptr); }
  };
  PlanCache<Asking> cache(2);
  for (int i = 0; i < 3; ++i) {
    cache.Insert(Key(i), {std::make_shared<const Asking>(&cache), 1, {i}});
  }
  cache.Insert(Key(2), {std::make_shared<const Asking>(&cache), 1, {2}});
  cache.SetWeight(Key(2), 2);
  cache.EraseOf(2);
  EXPECT_EQ(cache.size(), 0);
}

}  // namespace
}  // namespace crossmesh
