#include "common/daemon/descriptor_limit.h"

#include "common/testing/status_matchers.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace crossmesh {
namespace {

TEST(DescriptorLimitTest, IsRaisedToTheHardOne) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit lowered = {.rlim_cur = 64, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &lowered), 0);
  EXPECT_OK(RaiseDescriptorLimit());
  EXPECT_OK(RaiseDescriptorLimit());
  rlimit raised = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &raised), 0);
  EXPECT_EQ(raised.rlim_cur, before.rlim_max);
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace crossmesh
