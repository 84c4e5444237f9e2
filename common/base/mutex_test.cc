#include "common/base/mutex.h"

#include "common/base/thread.h"

#include <deque>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(MutexTest, ExcludesOtherThreads) {
  Mutex mutex;
  int counter = 0;
  std::vector<Thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back("adder", [&] {
      for (int n = 0; n < 10'000; ++n) {
        MutexLock lock(mutex);
        ++counter;
      }
    });
  }
  for (Thread& thread : threads) thread.Join();
  EXPECT_EQ(counter, 40'000);
}

TEST(CondVarTest, WaitWakesOnSignalAndHoldsTheMutexAgain) {
  Mutex mutex;
  CondVar not_empty;
  std::deque<int> queue;
  Thread producer("producer", [&] {
    for (int n = 0; n < 1000; ++n) {
      MutexLock lock(mutex);
      queue.push_back(n);
      not_empty.Signal();
    }
  });
  for (int expected = 0; expected < 1000; ++expected) {
    MutexLock lock(mutex);
    while (queue.empty()) not_empty.Wait(mutex);
    EXPECT_EQ(queue.front(), expected);
    queue.pop_front();
  }
}

TEST(CondVarTest, WaitForReportsThatTimeRanOut) {
  Mutex mutex;
  CondVar never;
  MutexLock lock(mutex);
  // A wait may wake for no reason; it cannot do so for ever.
  while (!never.WaitFor(mutex, absl::Milliseconds(1))) {
  }
  EXPECT_TRUE(never.WaitFor(mutex, -absl::Seconds(1)));
}

TEST(CondVarTest, WaitForWithoutEndWakesOnSignal) {
  Mutex mutex;
  CondVar changed;
  bool set = false;
  Thread setter("setter", [&] {
    MutexLock lock(mutex);
    set = true;
    changed.SignalAll();
  });
  MutexLock lock(mutex);
  while (!set) EXPECT_FALSE(changed.WaitFor(mutex, absl::InfiniteDuration()));
}

}  // namespace
}  // namespace crossmesh
