#include "common/daemon/stop_signals.h"

#include "common/base/thread.h"
#include "common/testing/status_matchers.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace crossmesh {
namespace {

class StopSignalsTest : public testing::Test {
 protected:
  StopSignalsTest() { pthread_sigmask(SIG_SETMASK, nullptr, &before_); }
  ~StopSignalsTest() override { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  sigset_t before_;
};

TEST_F(StopSignalsTest, ASignalIsWaitedForAndNamed) {
  ASSERT_OK_AND_ASSIGN(const StopSignals signals, StopSignals::Block({SIGTERM, SIGHUP}));
  for (const int signal : {SIGHUP, SIGTERM}) {
    ASSERT_EQ(kill(getpid(), signal), 0);
    EXPECT_EQ(signals.Wait(), signal);
  }
}

TEST_F(StopSignalsTest, TheWaitEndsWhenThereIsNothingToWaitForAnyMore) {
  ASSERT_OK_AND_ASSIGN(const StopSignals signals, StopSignals::Block());
  ASSERT_OK_AND_ASSIGN(EventFd done, EventFd::Create());
  const Thread ends("ends", [&done] { done.Signal(); });
  EXPECT_EQ(signals.Wait(&done), 0);
}

TEST_F(StopSignalsTest, StoppingTakesItsTime) {
  ASSERT_OK_AND_ASSIGN(const StopSignals signals, StopSignals::Block());
  bool stopped = false;
  EXPECT_OK(StopUnlessInsisted(signals, [&stopped] { stopped = true; }));
  EXPECT_TRUE(stopped);
}

void StopForEverWith(int second_signal) {
  const absl::StatusOr<StopSignals> signals = StopSignals::Block();
  const absl::StatusOr<EventFd> never = EventFd::Create();
  const absl::StatusOr<StopSignals> none = StopSignals::Block({});
  EXPECT_OK(StopUnlessInsisted(*signals, [&] {
    kill(getpid(), second_signal);
    none->Wait(&*never);
  }));
}

TEST_F(StopSignalsTest, AnotherSignalEndsTheProcessAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(StopForEverWith(SIGTERM), testing::ExitedWithCode(128 + SIGTERM), "");
  EXPECT_EXIT(StopForEverWith(SIGINT), testing::ExitedWithCode(128 + SIGINT), "");
}

}  // namespace
}  // namespace crossmesh
