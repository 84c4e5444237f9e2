#include "common/base/clock.h"

#include "common/base/fake_clock.h"

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(RealClockTest, WallTimeIsOfThisCentury) {
  EXPECT_GT(RealClock().Now(), absl::FromUnixSeconds(1'600'000'000));
}

TEST(RealClockTest, MonotonicTimeMovesForward) {
  const RealClock clock;
  const absl::Duration start = clock.Monotonic();
  while (clock.Monotonic() == start) {
  }
  EXPECT_GT(clock.Monotonic(), start);
}

TEST(FakeClockTest, StandsStillUntilAdvanced) {
  FakeClock clock(absl::FromUnixSeconds(100));
  EXPECT_EQ(clock.Now(), absl::FromUnixSeconds(100));
  EXPECT_EQ(clock.Monotonic(), absl::ZeroDuration());

  clock.Advance(absl::Seconds(3));
  clock.Advance(absl::Seconds(4));
  EXPECT_EQ(clock.Now(), absl::FromUnixSeconds(107));
  EXPECT_EQ(clock.Monotonic(), absl::Seconds(7));
}

}  // namespace
}  // namespace crossmesh
