#include "common/testing/status_matchers.h"
#include "worker/executor/replay_runner.h"
#include "worker/executor/testing/replay_fixture.h"
#include "worker/executor/testing/tile_memory.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(ReplayTest, EveryInstanceArrivesWithItsOwnContents) {
  StartBoth(MakePlan("a.0", "b.0-1"));
  RunAll(40);
  EXPECT_THAT(replays_[1].failures, IsEmpty());
  EXPECT_GT(replays_[0].first_byte, 0);
  EXPECT_EQ(workers_[1].executor->counters().relays_succeeded, 2 * 40);
  EXPECT_EQ(workers_[1].executor->counters().checksum_failures, 0);
  StopBoth(40);
}

TEST_F(ReplayTest, SoDoThoseInsideAWorker) {
  const Plan plan = MakePlan("a.0", "a.1-2");
  ASSERT_OK(Runner(0).StartReplays(MakeReplays(0, plan), replays_[0]));
  for (uint32_t instance = 0; instance < 20; ++instance) {
    ReplayedTensor& memory = memory_[instance % kBuffers];
    memory.Clear();
    memory.Fill(instance);
    Send(instance);
    RunUntil("the instance to end", [&] { return IsDone(0, instance); });
    EXPECT_EQ(memory.Wrong(instance), 0) << "instance " << instance;
  }
}

TEST_F(ReplayTest, NothingIsSentBeforeTheReceiverIsReady) {
  constexpr absl::Duration kStall = absl::Milliseconds(40);
  StartBoth(MakePlan("a.0", "b.0-1"), 0, kStall);
  memory_[0].Fill(0);
  Send(0);
  // The receiver takes its time, and answers when it is asked: no worker is blamed.
  RunFor(10 * kStall);
  EXPECT_THAT(workers_[0].executor->counters().links, IsEmpty());
  EXPECT_THAT(replays_[0].done, IsEmpty());
  EXPECT_EQ(workers_[0].executor->counters().stalls, 0);
  Receive(0);
  RunUntil("the instance to end at both workers", [&] { return IsDone(0, 0) && IsDone(1, 0); });
  EXPECT_EQ(memory_[0].Wrong(0), 0);
  EXPECT_THAT(replays_[1].failures, IsEmpty());
}

TEST_F(ReplayTest, AReceiverMayBeReadyBeforeTheSenderBegins) {
  constexpr absl::Duration kStall = absl::Milliseconds(40);
  StartBoth(MakePlan("a.0", "b.0-1"), 0, kStall);
  for (uint32_t instance = 0; instance < kBuffers; ++instance) {
    Receive(instance);
  }
  RunFor(10 * kStall);
  EXPECT_EQ(workers_[1].executor->counters().stalls, 0);
  for (uint32_t instance = 0; instance < kBuffers; ++instance) {
    memory_[instance].Fill(instance);
    Send(instance);
  }
  RunUntil("all instances to end at the receiver",
           [&] { return replays_[1].done.size() == kBuffers; });
  for (uint32_t instance = 0; instance < kBuffers; ++instance) {
    EXPECT_EQ(memory_[instance].Wrong(instance), 0);
  }
}

TEST_F(ReplayTest, TheFirstChunkIsOnItsWayBeforeTheOthersAreHashed) {
  StartBoth(MakePlan("a.0", "b.0-1"));
  memory_[0].Fill(0);
  for (int i = 0; i < 2; ++i) Runner(i).Replay(kReplayKey, 0, 0);
  RunFor(absl::Milliseconds(10));
  loop_->Post([this] { Runner(0).ReplaySourceHere(kReplayKey, 0); });
  const auto& links = workers_[1].executor->counters().links;
  RunUntil("the first chunk", [&] { return !links.empty(); });
  EXPECT_EQ(links[0].received, Plan::kLeafBytes);
  RunUntil("the instance to end at both workers", [&] { return IsDone(0, 0) && IsDone(1, 0); });
  EXPECT_EQ(memory_[0].Wrong(0), 0);
}

// Its messages are kept and none is answered, as if the worker had stopped.
TEST_F(ReplayTest, AReceiverThatAnswersNothingIsLost) {
  const Plan plan = MakePlan("a.0", "b.0-1");
  ASSERT_OK(Runner(0).StartReplays(MakeReplays(0, plan, 0, absl::Milliseconds(40)), replays_[0]));
  Send(0);
  RunUntil("the instance to fail", [&] { return IsDone(0, 0); });
  EXPECT_THAT(replays_[0].lost, ElementsAre("w1"));
  EXPECT_THAT(replays_[0].first_loss,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("worker w1 is lost: stalled")));
  // What comes after it fails at once.
  Runner(0).Replay(kReplayKey, 1, 1);
  RunUntil("the next instance to fail", [&] { return IsDone(0, 1); });
}

TEST_F(ReplayTest, ASenderThatAnswersNothingFailsTheDevices) {
  const Plan plan = MakePlan("a.0", "b.0-1");
  ASSERT_OK(Runner(1).StartReplays(MakeReplays(1, plan, 0, absl::Milliseconds(40)), replays_[1]));
  for (uint32_t instance = 0; instance < 2; ++instance) {
    Runner(1).Replay(kReplayKey, 0, instance);
    RunUntil("the instance to fail", [&] { return IsDone(1, instance); });
  }
  ASSERT_EQ(replays_[1].failures.size(), 4U);
  for (const absl::Status& failure : replays_[1].failures) {
    EXPECT_THAT(failure, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("worker w0 is lost")));
  }
}

TEST_F(ReplayTest, StoppedInTheMiddleTheyCanBeStartedAgain) {
  const Plan plan = MakePlan("a.0", "b.0-1");
  StartBoth(plan);
  RunAll(5);
  // Some are under way, one of them without its source, and one that the receiver has not begun.
  Send(5);
  Runner(0).Replay(kReplayKey, 0, 6);
  Send(7);
  Receive(5);
  Receive(6);
  RunUntilIdle();
  StopBoth(100);
  EXPECT_FALSE(replays_[1].failures.empty());
  for (const absl::Status& failure : replays_[1].failures) {
    EXPECT_THAT(failure, StatusIs(absl::StatusCode::kCancelled, HasSubstr("enough")));
  }
  for (Replays& replays : replays_) {
    replays.failures.clear();
    replays.stopped = false;
  }
  sent_ = received_ = looked_at_ = 100;
  StartBoth(plan, 100);
  RunAll(110);
  EXPECT_THAT(replays_[1].failures, IsEmpty());
}

TEST_F(ReplayTest, APlanThatTakesItsTimeTakesItEveryTime) {
  StartBoth(MakeSlowPlan(0.01));
  RunAll(12);
  EXPECT_THAT(replays_[1].failures, IsEmpty());
}

TEST_F(ReplayTest, NoInstanceIsFasterThanItsPlan) {
  constexpr double kLeastSeconds = 0.1;
  StartBoth(MakeSlowPlan(kLeastSeconds));
  // In the same buffer.
  for (const uint32_t instance : {0U, uint32_t{kBuffers}}) {
    const absl::Duration begin = clock_.Monotonic();
    Receive(instance);
    Send(instance);
    RunUntil("the instance to end at both workers",
             [&] { return IsDone(0, instance) && IsDone(1, instance); });
    // 64 chunks: the last one may go when all others have had their time.
    EXPECT_GE(absl::ToDoubleSeconds(clock_.Monotonic() - begin), kLeastSeconds * 62 / 64)
        << "instance " << instance;
  }
}

TEST_F(ReplayTest, AnObserverMayStartReplays) {
  class Starter final : public ReplayObserver {
   public:
    explicit Starter(std::function<void()> start) : start_(std::move(start)) {}
    void OnDeviceDone(const TaskKey& /*key*/, const DeviceReport& /*report*/) override {}
    void OnTaskDone(const TaskReport& /*report*/) override { start_(); }
    void OnReplaysStopped(const ReplayKey& /*key*/) override {}

   private:
    const std::function<void()> start_;
  };
  const Plan plan = MakePlan("a.0", "a.1-2");
  bool started = false;
  Starter starter([&] {
    for (uint32_t number = 100; number < 120; ++number) {
      ReplaySpec spec = MakeReplays(0, plan);
      spec.key.plan = number;
      ASSERT_OK(Runner(0).StartReplays(std::move(spec), replays_[1]));
    }
    started = true;
  });
  ASSERT_OK(Runner(0).StartReplays(MakeReplays(0, plan), starter));
  Send(0);
  RunUntil("the observer to start replays", [&] { return started; });
}

TEST_F(ReplayTest, AReceiverMayBeReadyBeforeTheSenderHasTheReplays) {
  const Plan plan = MakePlan("a.0", "b.0-1");
  ASSERT_OK(Runner(1).StartReplays(MakeReplays(1, plan), replays_[1]));
  Receive(0);
  RunUntilIdle();
  ASSERT_OK(Runner(0).StartReplays(MakeReplays(0, plan), replays_[0]));
  memory_[0].Fill(0);
  Send(0);
  RunUntil("the instance to end at both workers", [&] { return IsDone(0, 0) && IsDone(1, 0); });
  EXPECT_EQ(memory_[0].Wrong(0), 0);
  EXPECT_EQ(workers_[0].executor->counters().messages_dropped, 0);
}

TEST_F(ReplayTest, WhatIsSentForAnInstanceThatIsOverIsDropped) {
  const Plan plan = MakePlan("a.0", "b.0-1");
  ASSERT_OK(Runner(1).StartReplays(MakeReplays(1, plan), replays_[1]));
  Receive(0);
  Receive(1);
  RunUntilIdle();
  EXPECT_EQ(workers_[0].executor->counters().messages_dropped, 0) << "it waits there";
  ASSERT_OK(Runner(0).StartReplays(MakeReplays(0, plan), replays_[0]));
  Runner(0).StopReplays(kReplayKey, absl::CancelledError("enough"), 1);
  // The receivers of two channels are ready for the first instance.
  EXPECT_EQ(workers_[0].executor->counters().messages_dropped, 2);
}

TEST_F(ReplayTest, ReplaysThatAreNotKnownAreLeftAlone) {
  Send(0);
  Runner(0).StopReplays(kReplayKey, absl::CancelledError("enough"), 1);
  RunUntilIdle();
  EXPECT_THAT(replays_[0].done, IsEmpty());
  EXPECT_FALSE(replays_[0].stopped);
  StartBoth(MakePlan("a.0", "b.0-1"));
  Runner(0).ReplaySourceHere(kReplayKey, 7);
  RunAll(2);
}

TEST_F(ReplayTest, APartThatComputesScalesIsNotReplayed) {
  const Plan plan = MakeQuantizedPlan("b.0");
  const TileMemory memory(plan);
  const TaskSpec task = MakeSpec(0, plan, memory);
  const ReplaySpec spec{.key = kReplayKey,
                        .part = task.part,
                        .buffers = {{.sources = task.sources, .destinations = task.destinations}},
                        .peers = task.peers,
                        .peer_of_device = task.peer_of_device};
  EXPECT_THAT(Runner(0).StartReplays(spec, replays_[0]),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("without scales to compute")));
}

TEST_F(ReplayTest, WhatCannotBeReplayedIsRefused) {
  const Plan plan = MakePlan("a.0", "b.0-1");
  ReplaySpec spec = MakeReplays(0, plan);
  spec.buffers.clear();
  EXPECT_THAT(Runner(0).StartReplays(spec, replays_[0]),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected buffers")));
  spec = MakeReplays(0, plan);
  spec.buffers[1].sources.clear();
  EXPECT_THAT(Runner(0).StartReplays(spec, replays_[0]),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found none")));
  ASSERT_OK(Runner(0).StartReplays(MakeReplays(0, plan), replays_[0]));
  EXPECT_THAT(Runner(0).StartReplays(MakeReplays(0, plan), replays_[0]),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("plan 4")));
}

}  // namespace
}  // namespace crossmesh
