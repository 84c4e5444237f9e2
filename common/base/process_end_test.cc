#include "common/base/process_end.h"

#include "common/base/check.h"
#include "common/base/child_exit.h"

#include <csignal>

#include <absl/status/status.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace crossmesh {
namespace {

TEST(ProcessEndTest, IsSeenByItsDescriptor) {
  const pid_t child = fork();
  CHECK(child >= 0);
  while (child == 0) pause();
  const absl::StatusOr<UniqueFd> process = OpenProcess(child);
  CHECK_OK(process.status());
  EXPECT_FALSE(AwaitEnd(*process, absl::ZeroDuration()));
  kill(child, SIGKILL);
  EXPECT_TRUE(AwaitEnd(*process, absl::InfiniteDuration()));
  AwaitChild(child);
  EXPECT_TRUE(AwaitEnd(*process, absl::ZeroDuration())) << "told again, and to anybody";
  EXPECT_TRUE(absl::IsNotFound(OpenProcess(child).status()));
}

}  // namespace
}  // namespace crossmesh
