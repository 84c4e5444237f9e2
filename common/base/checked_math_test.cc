#include "common/base/checked_math.h"

#include <limits>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

TEST(CheckedMathTest, AddsWithinRange) {
  EXPECT_EQ(CheckedAdd(kMax - 1, 1), kMax);
  EXPECT_EQ(CheckedAdd(kMin, kMax), -1);
}

TEST(CheckedMathTest, AdditionNoticesOverflow) {
  EXPECT_EQ(CheckedAdd(kMax, 1), std::nullopt);
  EXPECT_EQ(CheckedAdd(kMin, -1), std::nullopt);
}

TEST(CheckedMathTest, MultipliesWithinRange) {
  EXPECT_EQ(CheckedMultiply(int64_t{1} << 31, int64_t{1} << 31), int64_t{1} << 62);
  EXPECT_EQ(CheckedMultiply(0, kMin), 0);
}

TEST(CheckedMathTest, MultiplicationNoticesOverflow) {
  EXPECT_EQ(CheckedMultiply(int64_t{1} << 32, int64_t{1} << 31), std::nullopt);
  EXPECT_EQ(CheckedMultiply(kMin, -1), std::nullopt);
}

}  // namespace
}  // namespace crossmesh
