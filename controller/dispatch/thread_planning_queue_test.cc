#include "controller/dispatch/thread_planning_queue.h"

#include "common/base/fake_clock.h"
#include "common/base/mutex.h"
#include "common/metrics/controller_metrics.h"
#include "common/testing/status_matchers.h"
#include "controller/dispatch/testing/gate.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kLongWork = PlanningOrder::kLongCost;

class ThreadPlanningQueueTest : public ::testing::Test {
 protected:
  // Keeps a thread, of a queue that is not busy, until the gate opens.
  void PostAndHold(ThreadPlanningQueue& queue, Gate& gate, int64_t cost) {
    Gate running;
    queue.Post({.client = "a", .cost = cost, .work = [&](const absl::Status& /*turn*/) {
                  running.Open();
                  gate.Wait();
                }});
    running.Wait();
  }
  void Run(ThreadPlanningQueue& queue, const std::string& client, int64_t cost) {
    Gate done;
    queue.Post({.client = client, .cost = cost, .work = [&](const absl::Status& turn) {
                  EXPECT_OK(turn);
                  done.Open();
                }});
    done.Wait();
  }

  const RealClock clock_;
  ControllerMetrics metrics_;
};

TEST_F(ThreadPlanningQueueTest, ShortJobsDoNotWaitForLongOnesThatRunAndWait) {
  Gate gate;
  ThreadPlanningQueue queue(2, clock_, metrics_);
  PostAndHold(queue, gate, kLongWork);
  int long_ones = 0;
  for (int i = 0; i < 3; ++i) {
    queue.Post({.client = "a", .cost = kLongWork, .work = [&](const absl::Status& turn) {
                  EXPECT_OK(turn);
                  ++long_ones;  // one at a time
                }});
  }
  Run(queue, "b", 1);
  Run(queue, "a", 1);
  EXPECT_EQ(long_ones, 0);
  gate.Open();
  Run(queue, "a", kLongWork + 1);
  EXPECT_EQ(long_ones, 3);
}

TEST_F(ThreadPlanningQueueTest, WhatWaitsWhenItStopsIsToldSoAndWhatComesLater) {
  Gate gate;
  Gate told;
  std::vector<absl::StatusCode> turns;
  ThreadPlanningQueue queue(2, clock_, metrics_);
  PostAndHold(queue, gate, kLongWork);
  const auto work = [&](const absl::Status& turn) {
    turns.push_back(turn.code());
    told.Open();
  };
  queue.Post({.client = "a", .cost = kLongWork, .work = work});
  Thread opener("opener", [&] {
    told.Wait();
    gate.Open();
  });
  queue.Stop();
  queue.Post({.client = "a", .work = work});
  EXPECT_THAT(queue.CheckRoom("a"), StatusIs(absl::StatusCode::kUnavailable));
  queue.Stop();
  EXPECT_THAT(turns, ElementsAre(absl::StatusCode::kUnavailable, absl::StatusCode::kUnavailable));
}

TEST_F(ThreadPlanningQueueTest, AJobForWhichThereIsNoPlaceIsToldSo) {
  Gate gate;
  ThreadPlanningQueue queue(2, clock_, metrics_);
  PostAndHold(queue, gate, kLongWork);
  for (int i = 0; i < PlanningOrder::kWaitingOfClientMax; ++i) {
    queue.Post({.client = "a", .cost = kLongWork, .work = [](const absl::Status& /*turn*/) {}});
  }
  absl::Status told;
  queue.Post({.client = "a", .cost = kLongWork, .work = [&](const absl::Status& t) { told = t; }});
  EXPECT_THAT(told, StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(queue.CheckRoom("a"), told);
  EXPECT_OK(queue.CheckRoom("b"));
  gate.Open();
}

TEST_F(ThreadPlanningQueueTest, TellsHowLongTheOneHadWaitedThatGotItsTurnLast) {
  Gate gate;
  FakeClock clock;
  ThreadPlanningQueue queue(2, clock, metrics_);
  EXPECT_EQ(queue.last_wait(), absl::ZeroDuration());
  PostAndHold(queue, gate, kLongWork);
  Gate done;
  queue.Post({.client = "a", .cost = kLongWork, .work = [&](const absl::Status& /*turn*/) {
                EXPECT_EQ(queue.last_wait(), absl::Seconds(3));
                done.Open();
              }});
  clock.Advance(absl::Seconds(3));
  EXPECT_EQ(queue.last_wait(), absl::ZeroDuration());
  gate.Open();
  done.Wait();
}

TEST_F(ThreadPlanningQueueTest, WhatIsAnsweredAtOnceGoesBeforePlansOnABusyProcessor) {
  ThreadPlanningQueue queue(2, clock_, metrics_);
  Gate done;
  int planning = 0;
  queue.Post({.client = "a", .work = [&](const absl::Status& /*turn*/) {
                planning = getpriority(PRIO_PROCESS, 0);
                done.Open();
              }});
  done.Wait();
  constexpr int kLeast = 19;  // that the system has
  EXPECT_GT(planning, std::min(getpriority(PRIO_PROCESS, 0), kLeast - 1));
}

TEST(ThreadPlanningQueueThreads, AreAtLeastTwoAndAsManyAsProcessorsUpToALimit) {
  EXPECT_EQ(ThreadPlanningQueue::ThreadsFor(0), 2);
  EXPECT_EQ(ThreadPlanningQueue::ThreadsFor(1), 2);
  EXPECT_EQ(ThreadPlanningQueue::ThreadsFor(6), 6);
  EXPECT_EQ(ThreadPlanningQueue::ThreadsFor(128), 8);
}

}  // namespace
}  // namespace crossmesh
