#include "common/plan/chunk_periods.h"

#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kPeriods = 8;
constexpr int64_t kChunkBytes = int64_t{1} << 20;

// Of chunks that are due at these parts of an execution, all of `bytes`.
std::vector<int64_t> PeriodsOf(const std::vector<int32_t>& due, int64_t bytes) {
  ChunkPeriods periods(kPeriods, kChunkBytes);
  std::vector<int64_t> found;
  for (const int32_t part : due) found.push_back(periods.Next(part, bytes));
  return found;
}

TEST(ChunkPeriodsTest, AChunkLeavesInThePeriodInWhichItIsDue) {
  std::vector<int32_t> due;
  for (int32_t i = 0; i < 8; ++i) due.push_back(DueTime::kParts / 8 * i);
  EXPECT_THAT(PeriodsOf(due, kChunkBytes / 2), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(ChunkPeriodsTest, APeriodTakesTwoOfTheLargestOfARelay) {
  EXPECT_THAT(PeriodsOf({0, 0, 0, 0}, kChunkBytes), ElementsAre(0, 0, 1, 1));
  // Those of a period that is skipped to as well, and to the byte.
  constexpr int32_t kHalf = DueTime::kParts / 2;
  EXPECT_THAT(PeriodsOf({kHalf, kHalf, kHalf}, kChunkBytes), ElementsAre(4, 4, 5));
  EXPECT_THAT(PeriodsOf({kHalf, kHalf, kHalf}, kChunkBytes + 1), ElementsAre(4, 5, 6));
}

TEST(ChunkPeriodsTest, WhatIsDueJustBeforeAPeriodIsDueInIt) {
  // A third of an execution, rounded down, lies before the second of three periods.
  ChunkPeriods periods(3, kChunkBytes);
  EXPECT_EQ(periods.Next(DueTime::kParts / 3, kChunkBytes), 1);
}

}  // namespace
}  // namespace crossmesh
