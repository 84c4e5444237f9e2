#include "worker/probe/rate_meter.h"

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(RateMeterTest, ASteadyStreamHasItsRate) {
  RateMeter meter(absl::Seconds(5));
  for (int i = 1; i <= 100; ++i) meter.Add(absl::Seconds(5) + i * absl::Milliseconds(10), 1000);
  EXPECT_EQ(meter.bytes(), 100'000);
  EXPECT_EQ(meter.BytesPerSecond(), 100'000);
}

TEST(RateMeterTest, TheFirstQuarterDoesNotCount) {
  RateMeter meter(absl::ZeroDuration());
  meter.Add(absl::Milliseconds(1), 1'000'000);  // what a shaper lets pass at once
  for (int i = 1; i <= 100; ++i) meter.Add(i * absl::Milliseconds(10), 10);
  EXPECT_EQ(meter.bytes(), 1'001'000);
  EXPECT_EQ(meter.BytesPerSecond(), 1000);
}

TEST(RateMeterTest, OneArrivalCountsFromTheBegin) {
  RateMeter meter(absl::ZeroDuration());
  meter.Add(absl::Microseconds(100), 1000);
  EXPECT_EQ(meter.BytesPerSecond(), 10'000'000);
}

TEST(RateMeterTest, NothingHasNoRate) {
  RateMeter meter(absl::Seconds(5));
  EXPECT_EQ(meter.BytesPerSecond(), 0);
  meter.Add(absl::Seconds(5), 10);
  EXPECT_EQ(meter.BytesPerSecond(), 0);
}

}  // namespace
}  // namespace crossmesh
