#include "common/base/backoff.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(BackoffTest, PausesStayUnderACeilingThatDoublesUpToTheMaximum) {
  Backoff backoff({.initial = absl::Milliseconds(100), .max = absl::Seconds(3)}, 7);
  absl::Duration ceiling = absl::Milliseconds(100);
  for (int i = 0; i < 20; ++i) {
    const absl::Duration pause = backoff.Next();
    EXPECT_GE(pause, absl::ZeroDuration());
    EXPECT_LE(pause, ceiling);
    ceiling = std::min(absl::Duration(absl::Seconds(3)), ceiling * 2);
  }
}

TEST(BackoffTest, PausesFillTheWholeRange) {
  Backoff backoff({.initial = absl::Seconds(1), .max = absl::Seconds(1)}, 1);
  absl::Duration least = absl::InfiniteDuration();
  absl::Duration most = absl::ZeroDuration();
  for (int i = 0; i < 1000; ++i) {
    const absl::Duration pause = backoff.Next();
    least = std::min(least, pause);
    most = std::max(most, pause);
  }
  EXPECT_LT(least, absl::Milliseconds(50));
  EXPECT_GT(most, absl::Milliseconds(950));
}

TEST(BackoffTest, ResetStartsAgainAtTheFirstPause) {
  Backoff backoff({.initial = absl::Milliseconds(1), .max = absl::Seconds(60)}, 3);
  for (int i = 0; i < 20; ++i) backoff.Next();
  backoff.Reset();
  EXPECT_LE(backoff.Next(), absl::Milliseconds(1));
}

}  // namespace
}  // namespace crossmesh
