#include "common/daemon/stack_dump.h"

#include "common/base/event_fd.h"
#include "common/base/thread.h"
#include "common/testing/status_matchers.h"

#include <csignal>
#include <cstddef>
#include <string>
#include <vector>

#include <absl/strings/str_split.h>
#include <gtest/gtest.h>
#include <poll.h>

namespace crossmesh {
namespace {

// ThreadSanitizer has a thread of its own, which takes no signals.
#if defined(__has_feature)
constexpr size_t kSilentThreads = __has_feature(thread_sanitizer) ? 1 : 0;
#else
constexpr size_t kSilentThreads = 0;
#endif

void WaitFor(const EventFd& event) {
  pollfd waiting = {.fd = event.fd(), .events = POLLIN};
  while (poll(&waiting, 1, -1) < 1) {
  }
}

TEST(StackDumpTest, AllThreadsAreThereByTheirNames) {
  ASSERT_OK_AND_ASSIGN(EventFd end, EventFd::Create());
  ASSERT_OK_AND_ASSIGN(EventFd begun, EventFd::Create());
  Thread stuck("stuck-thread", [&] {
    begun.Signal();
    WaitFor(end);
  });
  WaitFor(begun);
  testing::internal::CaptureStderr();
  DumpStacks();
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find(" stuck-thread\n"), std::string::npos) << text;
  EXPECT_EQ(text.find(" stuck-thread\n  does not answer"), std::string::npos) << text;
  const std::vector<std::string> around_silence = absl::StrSplit(text, "does not answer");
  EXPECT_EQ(around_silence.size(), 1 + kSilentThreads) << text;
  EXPECT_NE(text.find("common_daemon_test"), std::string::npos) << text;
  end.Signal();
}

TEST(StackDumpDeathTest, TheProcessEndsByItsSignal) {
  EXPECT_EXIT(AbortWithStacks(), testing::KilledBySignal(SIGABRT), "thread [0-9]+ ");
}

}  // namespace
}  // namespace crossmesh
