#include "common/base/thread.h"

#include <array>
#include <atomic>

#include <gtest/gtest.h>
#include <pthread.h>

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

}  // namespace
}  // namespace crossmesh
