#include "planner/network/fraction.h"

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(FractionTest, IsInLowestTerms) {
  EXPECT_EQ(Fraction(112, 3), Fraction(1120, 30));
  EXPECT_EQ(Fraction(1120, 30).denominator(), 3);
  EXPECT_EQ(Fraction(0, 7), Fraction());
}

TEST(FractionTest, Compares) {
  EXPECT_LT(Fraction(1, 3), Fraction(1, 2));
  EXPECT_LT(Fraction(4, 3), Fraction(3, 2));
  EXPECT_GT(Fraction(7, 5), Fraction(11, 8));
  EXPECT_LT(Fraction(2), Fraction(5, 2));
  EXPECT_GT(Fraction(1, 1000), Fraction());
  EXPECT_TRUE(Fraction(5) <= Fraction(5));
}

TEST(FractionTest, ComparesWhatCannotBeMultiplied) {
  const absl::int128 huge = absl::MakeInt128(int64_t{1} << 61, 0);
  EXPECT_LT(Fraction(huge, huge + 1), Fraction(huge + 1, huge + 2));
  EXPECT_GT(Fraction(huge + 3, huge + 2), Fraction(huge + 1, huge + 2));
}

TEST(FractionTest, ComparesAsQuotientsDo) {
  for (int a = 0; a < 12; ++a) {
    for (int b = 1; b < 12; ++b) {
      for (int c = 0; c < 12; ++c) {
        for (int d = 1; d < 12; ++d) {
          EXPECT_EQ(Fraction(a, b) < Fraction(c, d), a * d < c * b);
          EXPECT_EQ(Fraction(a, b) == Fraction(c, d), a * d == c * b);
        }
      }
    }
  }
}

TEST(FractionTest, PrintsWholeNumbersWithoutDenominator) {
  EXPECT_EQ(ToString(Fraction(32)), "32");
  EXPECT_EQ(ToString(Fraction(112, 3)), "112/3");
  EXPECT_DOUBLE_EQ(Fraction(1, 4).ToDouble(), 0.25);
}

}  // namespace
}  // namespace crossmesh
