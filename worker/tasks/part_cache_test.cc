#include "worker/tasks/part_cache.h"

#include "worker/executor/laid_out_part.h"

#include <memory>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

Digest DigestOf(uint64_t number) { return {.high = 0, .low = number}; }

std::shared_ptr<const LaidOutPart> AnyPart() { return std::make_shared<const LaidOutPart>(); }

TEST(PartCacheTest, DropsThePartThatWasNotAskedForLongest) {
  PartCache cache({.parts = 2, .bytes = 1000});
  cache.Insert(DigestOf(1), AnyPart(), 10);
  cache.Insert(DigestOf(2), AnyPart(), 10);
  EXPECT_NE(cache.Find(DigestOf(1)), nullptr);
  cache.Insert(DigestOf(3), AnyPart(), 10);
  EXPECT_NE(cache.Find(DigestOf(1)), nullptr);
  EXPECT_EQ(cache.Find(DigestOf(2)), nullptr);
  EXPECT_EQ(cache.bytes(), 20);
}

TEST(PartCacheTest, IsBoundedInBytesButHoldsOneWhateverItsSize) {
  PartCache cache({.parts = 100, .bytes = 100});
  for (uint64_t i = 0; i < 50; ++i) cache.Insert(DigestOf(i), AnyPart(), 30);
  EXPECT_EQ(cache.size(), 3);
  EXPECT_EQ(cache.bytes(), 90);
  cache.Insert(DigestOf(99), AnyPart(), 5000);
  EXPECT_EQ(cache.size(), 1);
  EXPECT_NE(cache.Find(DigestOf(99)), nullptr);
}

TEST(PartCacheTest, HoldsAsManyBytesAsItsLimitAndNoMore) {
  PartCache cache({.parts = 100, .bytes = 100});
  cache.Insert(DigestOf(1), AnyPart(), 60);
  cache.Insert(DigestOf(2), AnyPart(), 40);
  EXPECT_EQ(cache.size(), 2);
  EXPECT_EQ(cache.bytes(), 100);
  cache.Insert(DigestOf(3), AnyPart(), 1);
  EXPECT_EQ(cache.size(), 2);
  EXPECT_EQ(cache.bytes(), 41);
}

TEST(PartCacheTest, TheSamePartTwiceCountsOnce) {
  PartCache cache({});
  cache.Insert(DigestOf(1), AnyPart(), 10);
  cache.Insert(DigestOf(1), AnyPart(), 10);
  EXPECT_EQ(cache.size(), 1);
  EXPECT_EQ(cache.bytes(), 10);
}

}  // namespace
}  // namespace crossmesh
