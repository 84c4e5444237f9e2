#include "common/base/process_end.h"

#include "common/base/check.h"
#include "common/base/child_exit.h"

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <iterator>

#include <absl/status/status.h>
#include <absl/strings/match.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
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

// As an old seccomp profile of a container does.
void RefusePidfdOpen() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter = {.len = std::size(program), .filter = program};
  CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  CHECK_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
}

TEST(ProcessEndTest, AProfileThatRefusesTheCallIsNamedAsTheReason) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    RefusePidfdOpen();
    const absl::Status refused = OpenProcess(getpid()).status();
    _exit(absl::IsFailedPrecondition(refused) && absl::StrContains(refused.message(), "seccomp")
              ? 0
              : 1);
  }
  EXPECT_EQ(AwaitChild(child), "exit status 0");
}

}  // namespace
}  // namespace crossmesh
