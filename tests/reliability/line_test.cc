#include "tests/reliability/line.h"

#include <array>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::DoubleNear;

TEST(SlopeTest, OfPointsOnALineIsExact) {
  const std::array<Point, 4> points = {Point{1, 5}, {2, 7}, {4, 11}, {7, 17}};
  EXPECT_THAT(SlopeOf(points).value, DoubleNear(2, 1e-12));
  EXPECT_THAT(SlopeOf(points).standard_error, DoubleNear(0, 1e-7));
}

// By how many standard errors slopes of 200 points miss the true one, as its standard deviation
// over many trials, which is 1 when they are what they say.
double MissInStandardErrors(const std::function<double(double)>& next) {
  constexpr int kTrials = 400;
  double squares = 0;
  double noise = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<Point> points;
    for (int i = 0; i < 200; ++i) {
      noise = next(noise);
      points.push_back({i / 100.0, 3 * i / 100.0 + noise});
    }
    const Slope slope = SlopeOf(points);
    squares += std::pow((slope.value - 3) / slope.standard_error, 2);
  }
  return std::sqrt(squares / kTrials);
}

TEST(SlopeTest, IsWrongByItsStandardErrorWithNoiseOfEachPoint) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  EXPECT_THAT(MissInStandardErrors([&](double) { return normal(random); }), DoubleNear(1, 0.2));
}

TEST(SlopeTest, IsWrongByItsStandardErrorWithNoiseThatGoesOn) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  const auto next = [&](double before) { return 0.8 * before + normal(random); };
  EXPECT_THAT(MissInStandardErrors(next), DoubleNear(1, 0.3));
}

}  // namespace
}  // namespace crossmesh
