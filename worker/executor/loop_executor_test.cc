// An executor whose transport only notes what it is asked for, on a loop whose clock stands still.

#include "worker/executor/loop_executor.h"

#include "common/base/check.h"
#include "common/base/fake_clock.h"
#include "common/event_loop/event_loop.h"
#include "common/testing/status_matchers.h"
#include "worker/executor/replay_runner.h"
#include "worker/executor/staging_pool.h"
#include "worker/executor/testing/bare_task.h"
#include "worker/executor/testing/executor_fixture.h"
#include "worker/executor/testing/recording_transport.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/executor/wire_message.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::Duration kStallLimit = absl::Seconds(4);  // four rounds
constexpr absl::Duration kPendingFor = absl::Seconds(30);

class LoopExecutorTest : public testing::Test {
 protected:
  explicit LoopExecutorTest(ExecutorOptions options = {})
      : executor_(Executor::Create(*loop_, options)) {
    CHECK_OK(executor_->Attach(transport_));
  }
  ~LoopExecutorTest() override { loop_->Stop(); }

  TaskSpec SpecOf(const Plan& plan, const std::string& host, const TileMemory& memory,
                  uint64_t operation = 1) {
    TaskSpec spec = SpecOfHost(plan, host, memory);
    spec.key.operation = operation;
    spec.stall_limit = kStallLimit;
    return spec;
  }
  // How much there was to do until there was no more.
  int RunUntilIdle() {
    int handled = 0;
    while (const int more = loop_->RunOnce(absl::ZeroDuration())) handled += more;
    return handled;
  }
  int LetGoBy(absl::Duration time) {
    clock_.Advance(time);
    return RunUntilIdle();
  }
  // An opening of another worker's task.
  void Hear(uint64_t operation, uint64_t epoch = 1, uint64_t token_low = 6) {
    const MessageHeader header{.token_high = 5,
                               .token_low = token_low,
                               .operation = operation,
                               .epoch = epoch,
                               .kind = static_cast<uint32_t>(MessageKind::kOpening),
                               .payload_bytes = sizeof(OpeningPayload)};
    executor_->OnMessage(std::make_unique<RecordedMessage>(header, receipts_));
  }
  // Nothing more gets through of what was sent since the last call.
  void EndSends() {
    for (; ended_ < transport_.sent.size(); ++ended_) {
      executor_->OnSent(transport_.sent[ended_].ticket, absl::CancelledError("disconnected"));
    }
    RunUntilIdle();
  }
  int64_t dropped() const { return executor_->counters().messages_dropped; }

  FakeClock clock_;
  const std::unique_ptr<EventLoop> loop_ = *EventLoop::Create(clock_, {});
  RecordingTransport transport_;
  const std::unique_ptr<Executor> executor_;
  std::vector<RecordedMessage::Receipt> receipts_;
  size_t ended_ = 0;
  // From a.0 to b.0, and four mebibytes within a.0.
  const Plan to_b_ =
      PlanOfRelays(TensorOf("[64]: x=1 on a.0 [-] -> x=1 on b.0 [-]"), {{"a.0 > b.0"}});
  const TileMemory memory_{to_b_};
  const Plan within_ =
      PlanOfRelays(TensorOf("[1048576]: x=1 on a.0 [-] -> x=1 on a.0 [-]"), {},
                   {.copies = {{.slice_class = 0, .device = 0}}, .chunk_bytes = kLeaf});
  const TileMemory memory_within_{within_};
};

TEST_F(LoopExecutorTest, WorksOnUntilACopyIsDoneAndLeavesNoTimer) {
  Reports reports;
  ASSERT_OK(executor_->Start(SpecOf(within_, "a", memory_within_), reports));
  RunUntilIdle();
  ASSERT_TRUE(reports.task.has_value());
  EXPECT_EQ(reports.task->copied_bytes, 4 << 20);
  EXPECT_EQ(executor_->counters().copied_bytes, 4 << 20);
  EXPECT_OK(memory_within_.CheckDestination(0));
  EXPECT_EQ(LetGoBy(absl::Hours(1)), 0);
}

TEST_F(LoopExecutorTest, WorksOnUntilACopyOfAReplayIsDone) {
  class Observer final : public ReplayObserver {
   public:
    void OnDeviceDone(const TaskKey& /*key*/, const DeviceReport& /*report*/) override {}
    void OnTaskDone(const TaskReport& report) override { copied_bytes = report.copied_bytes; }
    void OnReplaysStopped(const ReplayKey& /*key*/) override {}

    int64_t copied_bytes = 0;
  };
  const TaskSpec spec = SpecOf(within_, "a", memory_within_);
  const ReplayKey key = ReplayKeyOf(spec.key);
  Observer observer;
  ASSERT_OK(executor_->replays().StartReplays(
      {.key = key,
       .part = spec.part,
       .buffers = {{.sources = spec.sources, .destinations = spec.destinations}}},
      observer));
  for (uint32_t instance = 0; instance < 2; ++instance) {
    observer.copied_bytes = 0;
    executor_->replays().Replay(key, 0, instance);
    RunUntilIdle();
    EXPECT_EQ(observer.copied_bytes, 0) << "its source is not here";
    executor_->replays().ReplaySourceHere(key, instance);
    RunUntilIdle();
    EXPECT_EQ(observer.copied_bytes, 4 << 20);
  }
}

TEST_F(LoopExecutorTest, AMessageOfAnUnknownTaskIsKeptForTwoRoundsAtMost) {
  Hear(7);
  Hear(8);
  EXPECT_EQ(LetGoBy(kPendingFor), 1) << "one timer for all";
  EXPECT_EQ(dropped(), 0);
  Hear(9);
  EXPECT_EQ(LetGoBy(kPendingFor), 1);
  EXPECT_EQ(dropped(), 2);
  EXPECT_EQ(LetGoBy(kPendingFor), 1);
  EXPECT_EQ(dropped(), 3);
  EXPECT_EQ(LetGoBy(kPendingFor), 0) << "none is left";
  Hear(10);
  EXPECT_EQ(LetGoBy(kPendingFor), 1);
  EXPECT_EQ(LetGoBy(kPendingFor), 1);
  EXPECT_EQ(dropped(), 4);
}

TEST_F(LoopExecutorTest, ATaskGetsWhatCameBeforeIt) {
  Hear(1);
  Reports reports;
  ASSERT_OK(executor_->Start(SpecOf(to_b_, "b", memory_), reports));
  EXPECT_THAT(receipts_, SizeIs(1));
  EXPECT_EQ(dropped(), 0);
}

TEST_F(LoopExecutorTest, ATaskThatRunsIsNotRefused) {
  Reports reports;
  ASSERT_OK(executor_->Start(SpecOf(to_b_, "b", memory_), reports));
  executor_->Refuse({.operation = 1, .epoch = 1});
  Hear(1);
  EXPECT_THAT(receipts_, SizeIs(1));
  // Another one is, before and after its messages have come.
  Hear(2);
  executor_->Refuse({.operation = 2, .epoch = 1});
  EXPECT_EQ(dropped(), 1);
  Hear(2);
  EXPECT_EQ(dropped(), 2);
}

TEST_F(LoopExecutorTest, TasksOfOlderEpochsDoNotStart) {
  Hear(1, 1);
  Hear(1, 2);
  executor_->RaiseEpoch(2);
  EXPECT_EQ(dropped(), 1);
  Hear(1, 1);
  EXPECT_EQ(dropped(), 2);
  Reports reports;
  EXPECT_THAT(executor_->Start(SpecOf(to_b_, "b", memory_), reports),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       "operation 1 of epoch 1, plan 0, instance 0 was started before"));
  TaskSpec spec = SpecOf(to_b_, "b", memory_);
  spec.key.epoch = 2;
  EXPECT_OK(executor_->Start(std::move(spec), reports));
  EXPECT_THAT(receipts_, SizeIs(1));
}

TEST_F(LoopExecutorTest, APeerThatIsLostIsLostToAllTasksAndConnectedAnewByTheNext) {
  Reports reports[3];
  for (const uint64_t operation : {0, 1}) {
    ASSERT_OK(executor_->Start(SpecOf(to_b_, "a", memory_, 1 + operation), reports[operation]));
  }
  EXPECT_THAT(transport_.connected, ElementsAre("address of b"));
  executor_->OnPeerLost(PeerId(1), absl::UnavailableError("gone"));
  EndSends();
  for (const int task : {0, 1}) {
    ASSERT_TRUE(reports[task].task.has_value());
    EXPECT_THAT(reports[task].task->lost_peers, ElementsAre("b"));
  }
  EXPECT_THAT(transport_.disconnected, IsEmpty());
  ASSERT_OK(executor_->Start(SpecOf(to_b_, "a", memory_, 3), reports[2]));
  EXPECT_THAT(transport_.connected, ElementsAre("address of b", "address of b"));
}

TEST_F(LoopExecutorTest, APeerThatTakesNothingIsCutOffAndConnectedAnewByTheNextTask) {
  Reports stalled;
  ASSERT_OK(executor_->Start(SpecOf(to_b_, "a", memory_), stalled));
  for (int round = 0; round < 4; ++round) LetGoBy(kStallLimit / 4);
  EXPECT_THAT(transport_.disconnected, IsEmpty());
  LetGoBy(kStallLimit / 4);
  ASSERT_FALSE(transport_.disconnected.empty());
  EXPECT_THAT(transport_.disconnected, Each(PeerId(1)));
  EXPECT_FALSE(stalled.task.has_value()) << "the transport may still read";
  EndSends();
  ASSERT_TRUE(stalled.task.has_value());
  EXPECT_THAT(stalled.task->lost_peers, ElementsAre("b"));
  EXPECT_THAT(stalled.task->first_loss,
              StatusIs(absl::StatusCode::kUnavailable,
                       "worker b is lost: stalled, it took nothing of channel a.0 -> b.0 for 4s"));
  EXPECT_EQ(executor_->counters().stalls, 1);
  Reports next;
  ASSERT_OK(executor_->Start(SpecOf(to_b_, "a", memory_, 2), next));
  EXPECT_THAT(transport_.connected, SizeIs(2));
}

TEST_F(LoopExecutorTest, TheDeadlineIsCountedFromTheStart) {
  TaskSpec spec = SpecOf(to_b_, "b", memory_);
  spec.deadline = absl::Milliseconds(500);  // before the first round of the stall timer
  Reports reports;
  ASSERT_OK(executor_->Start(std::move(spec), reports));
  LetGoBy(absl::Milliseconds(499));
  EXPECT_FALSE(reports.task.has_value());
  LetGoBy(absl::Milliseconds(1));
  ASSERT_TRUE(reports.task.has_value());
  EXPECT_EQ(reports.task->status, absl::DeadlineExceededError("deadline of 500ms"));
}

class LittleRoomTest : public LoopExecutorTest {
 protected:
  LittleRoomTest()
      : LoopExecutorTest(
            {.staging_bytes = 2 * 6 * StagingPool::kUnitBytes, .pending_messages_max = 1}) {}

  // Of MakePlan, in chunks of so many leaves and in many pieces.
  static Plan PlanInChunksOf(int64_t leaves) {
    Plan::Spec spec = MakePlan("a.0", "b.0-1").spec();
    spec.chunk_bytes = leaves * kLeaf;
    return *Plan::Create(std::move(spec));
  }
};

TEST_F(LittleRoomTest, HalfOfTheStagingIsForSendingAndIsLent) {
  ASSERT_THAT(transport_.lent, SizeIs(1));
  EXPECT_EQ(transport_.lent[0].bytes.size(), 6U * StagingPool::kUnitBytes);
  EXPECT_GE(transport_.lent[0].fd, 0);
  const Plan plan = PlanInChunksOf(7);
  const TileMemory memory(plan);
  Reports reports;
  EXPECT_THAT(executor_->Start(SpecOf(plan, "a", memory), reports),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("expected at most the 393216 bytes of staging")));
}

TEST_F(LittleRoomTest, StagingInUseIsCounted) {
  const Plan plan = PlanInChunksOf(3);
  const TileMemory memory(plan);
  EXPECT_EQ(executor_->counters().staging_bytes_used, 0);
  Reports reports;
  ASSERT_OK(executor_->Start(SpecOf(plan, "a", memory), reports));
  RunUntilIdle();
  EXPECT_EQ(executor_->counters().staging_bytes_used, 2 * 3 * StagingPool::kUnitBytes);
  executor_->Cancel({.operation = 1, .epoch = 1}, absl::CancelledError("enough"));
  EndSends();
  EXPECT_EQ(executor_->counters().staging_bytes_used, 0);
  EXPECT_EQ(executor_->counters().send_staging_peak, 2 * 3 * StagingPool::kUnitBytes);
  EXPECT_EQ(executor_->counters().receive_staging_peak, 0);
}

TEST_F(LittleRoomTest, MessagesForWhichThereIsNoRoomAreDropped) {
  Hear(7);
  EXPECT_EQ(dropped(), 0);
  Hear(7);
  EXPECT_EQ(dropped(), 1);
  executor_->Refuse({.operation = 7, .epoch = 1});
  EXPECT_EQ(dropped(), 2);
}

}  // namespace
}  // namespace crossmesh
