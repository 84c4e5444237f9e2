#include "common/base/deadline.h"

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(Deadline, OneThatHasPassedLeavesNothing) {
  EXPECT_TRUE(Deadline(absl::ZeroDuration()).passed());
  EXPECT_EQ(Deadline(-absl::Hours(1)).left(), absl::ZeroDuration());
}

TEST(Deadline, TheRestGetsLess) {
  const Deadline deadline(absl::Hours(1));
  const absl::Duration left = deadline.left();
  EXPECT_GT(left, absl::Minutes(30));
  EXPECT_LE(left, absl::Hours(1));
  EXPECT_LE(deadline.left(), left);
  EXPECT_FALSE(deadline.passed());
}

TEST(Deadline, OneWithoutEndNeverPasses) {
  EXPECT_EQ(Deadline(absl::InfiniteDuration()).left(), absl::InfiniteDuration());
}

}  // namespace
}  // namespace crossmesh
