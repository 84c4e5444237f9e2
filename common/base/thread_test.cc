#include "common/base/thread.h"

#include <algorithm>
#include <array>
#include <atomic>

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>

namespace crossmesh {
namespace {

TEST(ThreadTest, JoinIsRepeatable) {
  int value = 0;
  Thread thread("setter", [&] { value = 7; });
  thread.Join();
  EXPECT_EQ(value, 7);
  EXPECT_FALSE(thread.joinable());
  thread.Join();
}

TEST(ThreadTest, DestructorAndAssignmentJoin) {
  std::atomic<int> finished = 0;
  {
    Thread thread("first", [&] { ++finished; });
    thread = Thread("second", [&] { ++finished; });
    EXPECT_GE(finished, 1);
  }
  EXPECT_EQ(finished, 2);
}

TEST(ThreadTest, NameIsCutToWhatTheSystemKeeps) {
  std::array<char, 32> name = {};
  Thread thread("transport-loop-eth0",
                [&] { pthread_getname_np(pthread_self(), name.data(), name.size()); });
  thread.Join();
  EXPECT_STREQ(name.data(), "transport-loop-");
}

TEST(ThreadTest, OneInTheBackgroundLetsOthersGoAheadAndTheyStayAsTheyAre) {
  constexpr int kLeast = 19;  // that the system has
  const int own = getpriority(PRIO_PROCESS, 0);
  int in_background = 0;
  Thread thread(
      "background", [&] { in_background = getpriority(PRIO_PROCESS, 0); },
      ThreadPriority::kBackground);
  thread.Join();
  EXPECT_EQ(in_background, std::min(own + 10, kLeast));
  EXPECT_EQ(getpriority(PRIO_PROCESS, 0), own);
}

}  // namespace
}  // namespace crossmesh
