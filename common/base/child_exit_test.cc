#include "common/base/child_exit.h"

#include "common/base/check.h"

#include <csignal>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::Eq;
using ::testing::Optional;

pid_t StartChildThatEnds(int status) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) _exit(status);
  return child;
}

pid_t StartChildThatWaits() {
  const pid_t child = fork();
  CHECK(child >= 0);
  while (child == 0) pause();
  return child;
}

TEST(ChildExitTest, NothingIsToldWhileTheChildRuns) {
  const pid_t child = StartChildThatWaits();
  EXPECT_EQ(ReapChild(child), std::nullopt);
  kill(child, SIGKILL);
  EXPECT_THAT(AwaitChild(child), Optional(Eq("signal 9")));
}

TEST(ChildExitTest, TheStatusOfAChildThatEndsByItselfIsTold) {
  EXPECT_THAT(AwaitChild(StartChildThatEnds(70)), Optional(Eq("exit status 70")));
  EXPECT_THAT(AwaitChild(StartChildThatEnds(0)), Optional(Eq("exit status 0")));
}

TEST(ChildExitTest, AnEndIsToldOnce) {
  const pid_t child = StartChildThatEnds(1);
  siginfo_t end;
  ASSERT_EQ(waitid(P_PID, child, &end, WEXITED | WNOWAIT), 0);  // it has ended, and is still there
  EXPECT_THAT(ReapChild(child), Optional(Eq("exit status 1")));
  EXPECT_EQ(ReapChild(child), std::nullopt);
  EXPECT_EQ(AwaitChild(child), std::nullopt);
}

}  // namespace
}  // namespace crossmesh
