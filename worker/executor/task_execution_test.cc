// One worker's side of a task, message by message: what it drops, what it asks for, and what it
// reports of one instance and the next.

#include "worker/executor/task_execution.h"

#include "common/plan/testing/chain_plan.h"
#include "common/testing/status_matchers.h"
#include "worker/executor/testing/execution_fixture.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class TaskExecutionTest : public ExecutionTest {
 protected:
  // Of a tensor of a.0, which b.0 gives on to b.1.
  static Plan Chain() {
    return ChainPlan(TensorOf("[8]: x=1 on a.0 [-] -> x=2 on b.0-1 [-]"), {"a.0 > b.0 > b.1"});
  }
  static absl::Status Enough() { return absl::CancelledError("enough"); }
  const TaskReport& Finish() {
    Steps();
    EXPECT_TRUE(task_->done());
    return task_->FinishReport();
  }
};

TEST_F(TaskExecutionTest, WhatComesAsksForAStep) {
  Run(OneChannel(), "b");
  EXPECT_TRUE(WantsStep());
  EXPECT_FALSE(WantsStep());
  Say({.kind = MessageKind::kAlive});
  EXPECT_TRUE(WantsStep());
  Say(WholeChannel(0)[0]);
  WantsStep();
  Deliver();
  EXPECT_TRUE(WantsStep());
  Rounds(2);
  WantsStep();
  Take();
  EXPECT_TRUE(WantsStep());
  task_->OnPeerLost(IdOf(7), absl::UnavailableError("of another task"));
  EXPECT_TRUE(WantsStep());
  task_->GiveUpPeer("x", absl::UnavailableError("of another task"));
  EXPECT_TRUE(WantsStep());
  task_->OnSourceHere(1);
  EXPECT_TRUE(WantsStep());
  EXPECT_FALSE(WantsStep());
}

TEST_F(TaskExecutionTest, SoDoesACancelThatFailsNoRelay) {
  Run(OneChannel(), "a");
  WantsStep();
  task_->Cancel(Enough());
  EXPECT_TRUE(WantsStep());
}

TEST_F(TaskExecutionTest, SoDoesAChunkThatIsInPlace) {
  Run(ChainPlan(TensorOf("[8]: x=1 on b.0 [-] -> x=1 on b.1 [-]"), {"b.0 > b.1"}), "b");
  WantsStep();
  task_->Step();
  EXPECT_TRUE(WantsStep());
}

TEST_F(TaskExecutionTest, WhatIsNotOfTheTaskIsDroppedAndCounted) {
  Run(Chain(), "b");
  const Message message{.kind = MessageKind::kProbe};
  MessageHeader header = HeaderOf(message);
  header.token_high = kTokenHigh + 1;
  task_->OnMessage(MessageOf(header));
  EXPECT_FALSE(task_->Answer(header));
  EXPECT_EQ(shared_.counters.messages_dropped, 1);
  header = HeaderOf(message);
  header.token_low = kTokenLow + 1;
  task_->OnMessage(MessageOf(header));
  EXPECT_FALSE(task_->Answer(header));
  EXPECT_EQ(shared_.counters.messages_dropped, 2);
  // Of a channel that leads from b.0 to b.1.
  ASSERT_EQ(task_->spec().part->channels()[1].reach, PreparedPart::Reach::kLocal);
  header = HeaderOf({.channel = 1, .kind = MessageKind::kProbe});
  task_->OnMessage(MessageOf(header));
  EXPECT_FALSE(task_->Answer(header));
  EXPECT_EQ(shared_.counters.messages_dropped, 3);
  EXPECT_THAT(SentKinds(), IsEmpty());
  EXPECT_TRUE(task_->Answer(HeaderOf(message)));
  EXPECT_THAT(SentKinds(), ElementsAre(MessageKind::kAlive));
}

TEST_F(TaskExecutionTest, ASenderDropsWhatIsNoNotice) {
  Run(OneChannel(), "a");
  Say({.kind = MessageKind::kChunk, .sequence = 1});
  EXPECT_EQ(shared_.counters.messages_dropped, 1);
}

TEST_F(TaskExecutionTest, RoomForWhatMayBeUnderWayIsMadeAtOnce) {
  Make(MakeSpec(TwoReceivers(), "a"));
  // An opening and a closing of each channel, and what a lane may have in each direction.
  constexpr Ticket kTransfers = 2 * 2 + 2 * 32;
  const Ticket last = shared_.transfers.Add(*task_, {});
  EXPECT_EQ(last, kTransfers - 1);
  EXPECT_EQ(shared_.transfers.at(last).pieces.capacity(), 4U) << "as many as the transport takes";
}

TEST_F(TaskExecutionTest, ATransferThatHasEndedMakesRoom) {
  Run(OneChannel(), "b");
  for (int i = 0; i < 3; ++i) {
    Say({.kind = MessageKind::kProbe});
    Take();
  }
  EXPECT_EQ(transport_.sent[1].ticket, transport_.sent[0].ticket);
  EXPECT_EQ(transport_.sent[2].ticket, transport_.sent[0].ticket);
}

TEST_F(TaskExecutionTest, ASenderIsNotDoneWhileItsSourceIsAwaited) {
  TaskSpec spec = MakeSpec(OneChannel(), "a");
  spec.awaited_sources = {0};
  Make(std::move(spec));
  task_->Begin();
  Take();
  Steps();
  EXPECT_FALSE(task_->done());
  task_->OnSourceHere(0);
  EXPECT_THAT(SentKinds(),
              ElementsAre(MessageKind::kOpening, MessageKind::kChunk, MessageKind::kChecksum));
  EXPECT_FALSE(task_->done());
  Take();
  const TaskReport& report = Finish();
  EXPECT_OK(report.status);
  EXPECT_EQ(report.sent_bytes, 32);
  EXPECT_GT(report.seconds.first_byte, 0);
}

TEST_F(TaskExecutionTest, ATaskIsNotDoneBeforeItsAnswersAreTaken) {
  Run(OneChannel(), "b");
  SayAll(WholeChannel(0));
  Say({.kind = MessageKind::kProbe});
  Steps();
  EXPECT_FALSE(task_->done());
  Take();
  EXPECT_TRUE(task_->done());
}

TEST_F(TaskExecutionTest, EveryLinkIsReportedByItsPeer) {
  Run(ChainPlan(TensorOf("[12]: x=1 on b.0 [-] -> x=2 on a.0,c.0 {[0:4]; [4:12]}"),
                {"b.0 > a.0", "b.0 > c.0"}),
      "b");
  Take();
  const TaskReport& report = Finish();
  ASSERT_THAT(report.links, SizeIs(2));
  EXPECT_EQ(report.links[0].peer, "a");
  EXPECT_EQ(report.links[0].sent_bytes, 16);
  EXPECT_GT(report.links[0].busy_seconds, 0);
  EXPECT_EQ(report.links[1].peer, "c");
  EXPECT_EQ(report.links[1].sent_bytes, 32);
  EXPECT_GT(report.seconds.bind, 0);
}

TEST_F(TaskExecutionTest, TheDeadlineNamesWhatEachDeviceLacks) {
  Run(Chain(), "b");
  task_->OnDeadline();
  const TaskReport& report = Finish();
  EXPECT_EQ(report.status, absl::DeadlineExceededError("deadline of 1m"));
  ASSERT_THAT(report.devices, SizeIs(2));
  EXPECT_EQ(report.devices[0].status,
            absl::DeadlineExceededError(
                "deadline of 1m; missing: relay 0 at b.0 from worker a, channel a.0 -> b.0: 0 of "
                "1 chunks came"));
  EXPECT_EQ(report.devices[1].status,
            absl::DeadlineExceededError("deadline of 1m; missing: copies inside this worker"));
}

TEST_F(TaskExecutionTest, TheDeadlineNamesTheChannelOfTheDevice) {
  Run(TwoReceivers(), "b");
  SayAll(WholeChannel(0));
  Steps();
  task_->OnDeadline();
  const TaskReport& report = Finish();
  ASSERT_THAT(report.devices, SizeIs(2));
  EXPECT_OK(report.devices[0].status);
  EXPECT_EQ(report.devices[1].status,
            absl::DeadlineExceededError(
                "deadline of 1m; missing: relay 1 at b.1 from worker a, channel a.0 -> b.1: 0 of "
                "1 chunks came"));
}

TEST_F(TaskExecutionTest, ACancelEndsCopiesWhoseSourceIsAwaited) {
  TaskSpec spec = MakeSpec(ChainPlan(TensorOf("[8]: x=1 on b.0 [-] -> x=1 on b.0 [-]"), {},
                                     {.copies = {{.slice_class = 0, .device = 0}}}),
                           "b");
  spec.awaited_sources = {0};
  Make(std::move(spec));
  task_->Begin();
  Steps();
  EXPECT_FALSE(task_->done());
  task_->Cancel(Enough());
  task_->Cancel(absl::CancelledError("again"));
  const TaskReport& report = Finish();
  EXPECT_EQ(report.status, Enough());
  ASSERT_THAT(report.devices, SizeIs(1));
  EXPECT_EQ(report.devices[0].status, Enough());
  EXPECT_EQ(report.copied_bytes, 0);
}

TEST_F(TaskExecutionTest, ACancelEndsTheLastRelayInsideAWorker) {
  Run(ChainPlan(TensorOf("[8]: x=1 on b.0 [-] -> x=1 on b.1 [-]"), {"b.0 > b.1"}), "b");
  task_->Cancel(Enough());
  EXPECT_EQ(Finish().copied_bytes, 0) << "nothing is written once a task has been cancelled";
}

TEST_F(TaskExecutionTest, ARelayWhoseChecksumDiffersIsCounted) {
  Run(OneChannel(), "b");
  std::vector<Message> messages = WholeChannel(0);
  messages[2].payload[0] ^= std::byte{1};
  SayAll(messages);
  Finish();
  EXPECT_EQ(shared_.counters.checksum_failures, 1);
  EXPECT_EQ(shared_.counters.relays_failed, 1);
  EXPECT_EQ(shared_.counters.relays_succeeded, 0);
}

// b.0 gets columns of rows, in more pieces than the transport takes.
class StagedTaskTest : public TaskExecutionTest, private StagingWaiter {
 protected:
  StagedTaskTest() {
    all_ = *shared_.receive_staging.Allocate(shared_.receive_staging.bytes(), *this);
    Run(ChainPlan(TensorOf("[8, 2]: x=2 on a.0-1 [-, x] -> x=1 on b.0 [-, -]"),
                  {"a.0 > b.0", "a.1 > b.0"}),
        "b");
    Say(WholeChannel(0)[0]);
    Say(WholeChannel(0)[1]);  // which waits for staging
    Deliver();
  }
  ~StagedTaskTest() override { task_.reset(); }
  void FreeStaging() { shared_.receive_staging.Release(all_); }

 private:
  void OnStagingFree() override {}

  std::span<std::byte> all_;
};

TEST_F(StagedTaskTest, ACancelDropsWhatWaits) {
  Steps();
  EXPECT_FALSE(task_->done());
  task_->Cancel(Enough());
  EXPECT_EQ(Finish().received_bytes, 0);
}

TEST_F(StagedTaskTest, ATaskIsNotDoneWhileAMessageOfARelayThatFailedWaits) {
  std::vector<std::byte> failure(kFailureBytesMax);
  const size_t bytes =
      EncodeFailure(absl::UnavailableError("worker w9 is lost"),
                    std::span<std::byte, kFailureBytesMax>(failure.data(), kFailureBytesMax));
  failure.resize(bytes);
  Say({.kind = MessageKind::kFailed, .sequence = 2, .payload = failure});
  SayAll({{.channel = 1, .kind = MessageKind::kOpening, .payload = WholeChannel(1)[0].payload},
          {.channel = 1, .kind = MessageKind::kFailed, .sequence = 2, .payload = failure}});
  Steps();
  EXPECT_FALSE(task_->done());
  FreeStaging();
  EXPECT_TRUE(task_->done());
  EXPECT_EQ(shared_.counters.messages_dropped, 1);
}

class RewoundTaskTest : public TaskExecutionTest {
 protected:
  void Again(uint32_t instance) {
    task_->Rewind(instance);
    task_->Begin();
  }
};

TEST_F(RewoundTaskTest, EveryInstanceReportsItsOwn) {
  Run(Chain(), "b");
  for (uint32_t instance = 0; instance < 3; ++instance) {
    if (instance > 0) Again(instance);
    SayAll(WholeChannel(0, instance));
    EXPECT_EQ(task_->moved_bytes(), 32) << "nothing is copied before a step";
    const TaskReport& report = Finish();
    EXPECT_EQ(report.key.instance, instance);
    EXPECT_OK(report.status);
    EXPECT_EQ(report.received_bytes, 32);
    EXPECT_EQ(report.copied_bytes, 32);
    EXPECT_THAT(report.devices, SizeIs(2));
    EXPECT_EQ(shared_.counters.relays_succeeded, 2 * (instance + 1));
  }
}

TEST_F(RewoundTaskTest, AnInstanceThatWasCancelledIsForgotten) {
  Run(TwoSenders(), "b");
  task_->GiveUpPeer("x", absl::UnavailableError("of another task"));
  SayAll(WholeChannel(0));
  task_->Cancel(Enough());
  EXPECT_EQ(Finish().status, Enough());
  Again(1);
  SayAll(WholeChannel(0, 1));
  SayAll(WholeChannel(1, 1));
  const TaskReport& report = Finish();
  EXPECT_OK(report.status);
  EXPECT_OK(report.first_loss);
  ASSERT_THAT(report.devices, SizeIs(1));
  EXPECT_OK(report.devices[0].status);
  EXPECT_EQ(report.received_bytes, 32);
}

// Peers that are lost are lost for all that comes, in their own order.
TEST_F(RewoundTaskTest, TheFirstLossIsThatOfTheInstance) {
  Run(TwoSenders(), "b");
  task_->OnPeerLost(IdOf(2), absl::UnavailableError("gone"));
  task_->OnPeerLost(IdOf(0), absl::UnavailableError("gone as well"));
  EXPECT_EQ(Finish().first_loss, absl::UnavailableError("worker c is lost: gone"));
  Again(1);
  const TaskReport& report = Finish();
  EXPECT_EQ(report.first_loss, absl::UnavailableError("worker a is lost: gone as well"));
  EXPECT_THAT(report.lost_peers, ElementsAre("a", "c"));
}

TEST_F(RewoundTaskTest, EveryInstanceAwaitsItsSource) {
  TaskSpec spec = MakeSpec(OneChannel(), "a");
  spec.awaited_sources = {0};
  Make(std::move(spec));
  task_->Begin();
  for (uint32_t instance = 0; instance < 3; ++instance) {
    if (instance > 0) Again(instance);
    Take();
    Steps();
    EXPECT_EQ(SentOf(MessageKind::kChunk), instance);
    EXPECT_FALSE(task_->done());
    task_->OnSourceHere(0);
    EXPECT_EQ(SentOf(MessageKind::kChunk), instance + 1);
    Take();
    const TaskReport& report = Finish();
    EXPECT_GT(report.seconds.first_byte, 0);
    EXPECT_EQ(report.sent_bytes, 32);
    ASSERT_THAT(report.links, SizeIs(1));
    EXPECT_EQ(report.links[0].sent_bytes, 32);
  }
  Again(3);
  Take();
  task_->Cancel(Enough());
  Take();
  EXPECT_EQ(Finish().seconds.first_byte, 0) << "of an instance without a chunk";
}

TEST_F(RewoundTaskTest, TheTimeOfAnInstanceBeginsWhenItIsRewound) {
  using Clock = std::chrono::steady_clock;
  Run(OneChannel(), "b");
  task_->Cancel(Enough());
  Finish();
  const Clock::time_point made = Clock::now();
  while (Clock::now() - made < std::chrono::milliseconds(2)) {
  }
  const Clock::time_point rewound = Clock::now();
  Again(1);
  task_->Cancel(Enough());
  const PhaseSeconds seconds = Finish().seconds;
  EXPECT_LE(seconds.bind + seconds.move,
            std::chrono::duration<double>(Clock::now() - rewound).count());
}

}  // namespace
}  // namespace crossmesh
