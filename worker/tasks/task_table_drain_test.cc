// When a worker that drains is idle, and what its tasks are asked once a second.

#include "common/base/log.h"
#include "common/testing/status_matchers.h"
#include "worker/tasks/testing/task_fixture.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class TaskDrainTest : public TaskFixture {
 protected:
  void Drain() {
    table_.Drain([this] { ++idle_; });
  }

  int idle_ = 0;
};

TEST_F(TaskDrainTest, AWorkerWithoutTasksIsIdleAtOnceEveryTime) {
  Drain();
  EXPECT_EQ(idle_, 1);
  Drain();
  EXPECT_EQ(idle_, 2);
}

TEST_F(TaskDrainTest, ATaskThatRunsIsWaitedForWithoutItsCaller) {
  Start(Key(1))->call.OnGone();
  Drain();
  EXPECT_EQ(idle_, 0);
  Finish(Key(1));
  EXPECT_EQ(idle_, 1);
}

TEST_F(TaskDrainTest, ATaskThatTheExecutorRefusesIsNotWaitedFor) {
  executor_.RefuseStarts(absl::UnavailableError("no link to a worker"));
  FakeExecuteCall call(table_);
  Send(call, StartOf(Key(1)));
  call.call.OnRequest(PieceOf(0, part_bytes_.size(), true));
  Drain();
  EXPECT_EQ(idle_, 0);
  RunLoops();
  EXPECT_EQ(idle_, 1);
}

TEST_F(TaskDrainTest, WhenAllIsCancelledCallersAreNotWaitedForAtOnce) {
  const auto call = Start(Key(1));
  Finish(Key(1));
  Drain();
  EXPECT_EQ(idle_, 0);
  table_.CancelAll(absl::CancelledError("the worker stops"));
  EXPECT_EQ(idle_, 1);
  RunLoops();
  EXPECT_THAT(executor_.cancelled(), IsEmpty()) << "it has ended";
}

TEST_F(TaskDrainTest, OneThatIsTakenBackTellsNobody) {
  Start(Key(1))->call.OnGone();
  Drain();
  table_.Undrain();
  Finish(Key(1));
  EXPECT_EQ(idle_, 0);
}

TEST_F(TaskDrainTest, TasksStartOnceItIsTakenBack) {
  Drain();
  table_.Undrain();
  const auto call = Start(Key(1));
  EXPECT_EQ(table_.size(), 1);
  EXPECT_THAT(executor_.refused(), IsEmpty());
}

class TaskSweepTest : public TaskFixture {
 protected:
  std::vector<std::string> events_;

 private:
  const ScopedLogSink sink_{[this](const LogRecord& record) { events_.push_back(record.event); }};
};

TEST_F(TaskSweepTest, ATaskThatRunsIsNotAbandoned) {
  Start(Key(1))->call.OnGone();
  Advance(absl::Hours(2));
  EXPECT_TRUE(StatusOf("new", "b.0").writing);
  EXPECT_EQ(table_.size(), 1);
  Finish(Key(1));
  Advance(absl::Seconds(1));
  EXPECT_FALSE(StatusOf("new", "b.0").writing);
}

TEST_F(TaskSweepTest, WhatIsAbandonedIsLoggedOnce) {
  Start(Key(1))->call.OnGone();
  Finish(Key(1));
  events_.clear();
  for (int i = 0; i < 3; ++i) Advance(absl::Minutes(2));
  EXPECT_THAT(events_, ElementsAre("task_abandoned"));
}

TEST_F(TaskSweepTest, OnlyATaskThatFailedIsLogged) {
  const auto good = Start(Key(1));
  events_.clear();
  Finish(Key(1));
  EXPECT_THAT(events_, IsEmpty());
  Send(*good, ResolveOf({2, 3}, true));
  const auto bad = Start(Key(2));
  Finish(Key(2), absl::UnavailableError("a peer is lost"));
  EXPECT_THAT(events_, ElementsAre("task_failed"));
}

TEST_F(TaskSweepTest, TasksAreLookedAtOnceASecondHoweverManyThereAre) {
  const auto first = Start(Key(1));
  Finish(Key(1));
  Send(*first, ResolveOf({2, 3}, true));
  const auto second = Start(Key(2));
  for (int i = 0; i < 3; ++i) {
    clock_.Advance(absl::Seconds(1));
    EXPECT_EQ(control_->RunOnce(absl::ZeroDuration()), 1);
    EXPECT_EQ(control_->RunOnce(absl::ZeroDuration()), 0);
  }
}

}  // namespace
}  // namespace crossmesh
