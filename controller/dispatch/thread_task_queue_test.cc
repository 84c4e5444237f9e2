#include "controller/dispatch/thread_task_queue.h"

#include "controller/dispatch/testing/gate.h"

#include <atomic>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;

class ThreadTaskQueueTest : public ::testing::Test {
 protected:
  const RealClock clock_;
};

TEST_F(ThreadTaskQueueTest, TasksRunInTheirOrder) {
  std::vector<int> ran;
  Gate done;
  ThreadTaskQueue queue({.name = "test"}, clock_);
  for (int i = 0; i < 100; ++i) queue.Post([&ran, i] { ran.push_back(i); });
  queue.Post([&done] { done.Open(); });
  done.Wait();
  ASSERT_EQ(ran.size(), 100);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ran[i], i);
}

TEST_F(ThreadTaskQueueTest, TimersRunWhenTheirTimeHasComeInTheOrderOfTheirTimes) {
  std::vector<int> ran;
  Gate done;
  ThreadTaskQueue queue({.name = "test"}, clock_);
  queue.PostAfter(absl::Milliseconds(20), [&] {
    ran.push_back(2);
    done.Open();
  });
  queue.PostAfter(absl::Milliseconds(10), [&] { ran.push_back(1); });
  done.Wait();
  EXPECT_THAT(ran, ElementsAre(1, 2));
}

TEST_F(ThreadTaskQueueTest, ACancelledTimerDoesNotRun) {
  std::atomic<bool> ran = false;
  Gate done;
  ThreadTaskQueue queue({.name = "test"}, clock_);
  const TaskQueue::Timer timer = queue.PostAfter(absl::Milliseconds(5), [&ran] { ran = true; });
  queue.Cancel(timer);
  queue.Cancel(timer);
  queue.PostAfter(absl::Milliseconds(10), [&done] { done.Open(); });
  done.Wait();
  EXPECT_FALSE(ran);
}

TEST_F(ThreadTaskQueueTest, AFullQueueRefusesTasks) {
  Gate go;
  Gate running;
  ThreadTaskQueue queue({.name = "test", .tasks_max = 2}, clock_);
  queue.Post([&] {
    running.Open();
    go.Wait();
  });
  running.Wait();
  EXPECT_TRUE(queue.Post([] {}));
  EXPECT_TRUE(queue.Post([] {}));
  EXPECT_FALSE(queue.Post([] {}));
  go.Open();
}

TEST_F(ThreadTaskQueueTest, AStoppedQueueRefusesTasksAndDropsWhatWaits) {
  auto held = std::make_shared<int>(1);
  ThreadTaskQueue queue({.name = "test"}, clock_);
  queue.PostAfter(absl::Hours(1), [held] { ADD_FAILURE() << "ran"; });
  queue.Stop();
  queue.Stop();
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_FALSE(queue.Post([] {}));
}

}  // namespace
}  // namespace crossmesh
