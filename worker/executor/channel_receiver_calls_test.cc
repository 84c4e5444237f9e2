// A receiver by itself: what it makes of every call.

#include "common/base/check.h"
#include "common/testing/status_matchers.h"
#include "worker/executor/channel_receiver.h"
#include "worker/executor/staging_pool.h"
#include "worker/executor/stall_counter.h"
#include "worker/executor/testing/bare_task.h"
#include "worker/executor/testing/executor_fixture.h"
#include "worker/executor/testing/recording_transport.h"
#include "worker/executor/wire_message.h"
#include "worker/transport/pieces.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

// From a.0 to b.0, in relays of three leaves and of ten bytes: chunks 1, 2, 3, the end 4, chunk 5,
// the end 6, and the end of all 7.
Plan TwoRelays() {
  return PlanOfRelays(
      TensorOf(absl::StrCat("[", 3 * kLeaf + 10, "]: x=1 on a.0 [-] -> x=1 on b.0 ", "[-]"),
               DataType::kU8),
      {{"a.0 > b.0", 3 * kLeaf}, {"a.0 > b.0", 10}});
}

// Of a leaf each, from a.0 and a.1 to b.0: two channels to one device.
Plan TwoSenders() {
  return PlanOfRelays(
      TensorOf(absl::StrCat("[", 2 * kLeaf, "]: x=2 on a.0-1 [x] -> x=1 on b.0 [-]"),
               DataType::kU8),
      {{"a.0 > b.0"}, {.chain = "a.1 > b.0", .slice_class = 1}});
}

class ReceiverCallsTest : public testing::Test {
 protected:
  void Make(Plan plan, const BareTask::Options& options = {}) {
    receiver_.reset();
    task_.reset();
    receipts_.clear();
    plan_ = std::make_unique<const Plan>(std::move(plan));
    task_ = std::make_unique<BareTask>(*plan_, "b", options);
    receiver_ = std::make_unique<ChannelReceiver>(task_->context, 0, PeerId(1));
  }

  void Say(MessageKind kind, uint64_t sequence, int64_t bytes) {
    const MessageHeader header{.kind = static_cast<uint32_t>(kind),
                               .sequence = sequence,
                               .payload_bytes = static_cast<uint64_t>(bytes)};
    receiver_->OnMessage(std::make_unique<RecordedMessage>(header, receipts_));
  }
  // The payload of the message that was received as this one, counted from 0, has come.
  void Complete(size_t receipt, const absl::Status& status = absl::OkStatus()) {
    receiver_->OnReceived(receipts_.at(receipt).ticket, status);
  }
  void SayOpening() {
    Say(MessageKind::kOpening, 0, sizeof(OpeningPayload));
    const OpeningPayload opening{.order = task_->part().channels()[0].order,
                                 .chunk_bytes = task_->part().chunk_bytes(),
                                 .checksums = task_->spec.checksums ? 1 : 0};
    std::memcpy(receipts_.back().into.at(0).iov_base, &opening, sizeof(opening));
    Complete(receipts_.size() - 1);
  }
  void SayWholeChunk(uint64_t sequence, int64_t bytes) {
    Say(MessageKind::kChunk, sequence, bytes);
    Complete(receipts_.size() - 1);
  }
  int32_t NodeOf(int32_t channel, int32_t entry = 0) {
    return task_->EntryOf(channel, entry).to_node;
  }
  int64_t dropped() const { return task_->shared.counters.messages_dropped; }

  std::unique_ptr<const Plan> plan_;
  std::unique_ptr<BareTask> task_;
  std::vector<RecordedMessage::Receipt> receipts_;
  std::unique_ptr<ChannelReceiver> receiver_;
};

struct Said {
  MessageKind kind = MessageKind::kChunk;
  uint64_t sequence = 0;
  int64_t bytes = 0;
  bool checksums = true;
};

TEST_F(ReceiverCallsTest, WhatThePlanHasNoPlaceForFailsTheChannel) {
  for (const Said& said :
       std::vector<Said>{{MessageKind::kOpening, 1, 32},
                         {MessageKind::kOpening, 0, 31},
                         {MessageKind::kOpening, 0, 33},
                         {MessageKind::kChunk, 0, kLeaf},
                         {MessageKind::kChunk, 0, 0},
                         {MessageKind::kChunk, 1, kLeaf - 1},
                         {MessageKind::kChunk, 3, kLeaf + 1},
                         {MessageKind::kChunk, 4, 0},  // where the next relay begins
                         {MessageKind::kChunk, 4, kLeaf},
                         {MessageKind::kChunk, 5, kLeaf},
                         {MessageKind::kChunk, 7, 10},
                         {MessageKind::kChunk, 8, 10},
                         {MessageKind::kChecksum, 3, 8},
                         {MessageKind::kChecksum, 4, 7},
                         {MessageKind::kChecksum, 4, 9},
                         {MessageKind::kChecksum, 7, 8},
                         {MessageKind::kChecksum, 8, 8},
                         {MessageKind::kChecksum, 4, 8, /*checksums=*/false},
                         {MessageKind::kFailed, 0, 1},
                         {MessageKind::kFailed, 3, 1},
                         {MessageKind::kFailed, 4, 0},
                         {MessageKind::kFailed, 4, kFailureBytesMax + 1},
                         {MessageKind::kFailed, 8, 1},
                         {MessageKind::kProbe, 4, 8},
                         {MessageKind::kAlive, 4, 8},
                         {MessageKind::kReady, 4, 8},
                         {static_cast<MessageKind>(99), 4, 8}}) {
    Make(TwoRelays(), {.checksums = said.checksums});
    Say(said.kind, said.sequence, said.bytes);
    EXPECT_THAT(
        task_->progress.failure(NodeOf(0)),
        StatusIs(absl::StatusCode::kInternal,
                 absl::StrCat("worker a, channel a.0 -> b.0 sent a message of kind ",
                              static_cast<int>(said.kind), " and ", said.bytes, " bytes as number ",
                              said.sequence, ", which its plan has no place for")));
    EXPECT_THAT(receipts_, IsEmpty());
    EXPECT_FALSE(receiver_->expecting());
  }
}

TEST_F(ReceiverCallsTest, WhatThePlanHasAPlaceForIsReceived) {
  for (const Said& said : std::vector<Said>{{MessageKind::kOpening, 0, 32},
                                            {MessageKind::kChunk, 1, kLeaf},
                                            {MessageKind::kChunk, 3, kLeaf},
                                            {MessageKind::kChunk, 5, 10},
                                            {MessageKind::kChecksum, 4, 8},
                                            {MessageKind::kChecksum, 6, 8},
                                            {MessageKind::kFailed, 4, 1},
                                            {MessageKind::kFailed, 6, kFailureBytesMax},
                                            {MessageKind::kFailed, 7, kFailureBytesMax}}) {
    Make(TwoRelays());
    Say(said.kind, said.sequence, said.bytes);
    ASSERT_THAT(receipts_, SizeIs(1)) << said.sequence;
    EXPECT_EQ(BytesOf(receipts_[0].into), static_cast<uint64_t>(said.bytes));
    EXPECT_TRUE(receiver_->expecting());
    EXPECT_FALSE(receiver_->finished());
  }
}

TEST_F(ReceiverCallsTest, AChunkInFewPiecesIsReceivedWhereItLies) {
  Make(TwoRelays());
  Say(MessageKind::kChunk, 2, kLeaf);
  ASSERT_THAT(receipts_.at(0).into, SizeIs(1));
  EXPECT_EQ(receipts_[0].into[0].iov_base, task_->spec.destinations.at(1).tensor[0] + kLeaf);
  EXPECT_EQ(task_->shared.receive_staging.used_bytes(), 0);
}

TEST_F(ReceiverCallsTest, WhateverComesAfterAFailureIsDropped) {
  Make(TwoRelays());
  Say(MessageKind::kChunk, 8, kLeaf);
  EXPECT_EQ(dropped(), 0);
  Say(MessageKind::kOpening, 0, 32);
  Say(MessageKind::kChunk, 1, kLeaf);
  Say(MessageKind::kFailed, 7, 1);
  Say(MessageKind::kChunk, 8, kLeaf);
  EXPECT_EQ(dropped(), 4);
  EXPECT_THAT(receipts_, IsEmpty());
}

TEST_F(ReceiverCallsTest, TheFailureOfAllThatIsLeftTakesNoEndOfTheNextChannel) {
  Make(TwoSenders());
  Say(MessageKind::kFailed, 3, 5);
  ASSERT_THAT(receipts_, SizeIs(1));
  EXPECT_TRUE(task_->progress.TakeEnd(NodeOf(1)));
  // Nor of this one, whose end may come first.
  EXPECT_TRUE(task_->progress.TakeEnd(NodeOf(0)));
}

TEST_F(ReceiverCallsTest, AFailedRelayLeavesTheOthersOfTheChannel) {
  Make(TwoRelays());
  Say(MessageKind::kFailed, 4, 1);
  *static_cast<std::byte*>(receipts_.at(0).into.at(0).iov_base) =
      static_cast<std::byte>(absl::StatusCode::kDataLoss);
  Complete(0);
  EXPECT_THAT(task_->progress.failure(NodeOf(0)), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_FALSE(task_->progress.settled(NodeOf(0, 1)));
  EXPECT_TRUE(receiver_->expecting());
}

TEST_F(ReceiverCallsTest, AChunkThatDoesNotGetThroughFailsTheChannelOfItsWorker) {
  Make(TwoRelays());
  Say(MessageKind::kChunk, 1, kLeaf);
  Complete(0, absl::UnavailableError("cut"));
  EXPECT_EQ(task_->progress.failure(NodeOf(0, 1)),
            absl::UnavailableError("worker a, channel a.0 -> b.0: cut"));
  EXPECT_EQ(task_->report.received_bytes, 0);
  EXPECT_TRUE(receiver_->finished());
  EXPECT_TRUE(task_->progress.device_settled(1));
}

TEST_F(ReceiverCallsTest, AChunkOfARelayThatHasFailedMeanwhileIsOnlyCounted) {
  Make(TwoRelays());
  Say(MessageKind::kChunk, 1, kLeaf);
  task_->progress.FailNode(NodeOf(0), absl::UnavailableError("gone"));
  Complete(0);
  EXPECT_EQ(task_->progress.chunks_in_place(NodeOf(0)), 0);
  EXPECT_EQ(task_->report.received_bytes, kLeaf);
  EXPECT_EQ(task_->shared.counters.At("local").received, kLeaf);
  EXPECT_EQ(task_->context.transfers_open, 0);
}

TEST_F(ReceiverCallsTest, WhatIsMissingIsTheFirstThatIsNotComplete) {
  Make(TwoRelays(), {.checksums = false});
  EXPECT_EQ(receiver_->Missing(),
            "relay 0 at b.0 from worker a, channel a.0 -> b.0: 0 of 3 chunks came");
  SayWholeChunk(2, kLeaf);
  EXPECT_EQ(receiver_->Missing(),
            "relay 0 at b.0 from worker a, channel a.0 -> b.0: 1 of 3 chunks came");
  SayWholeChunk(1, kLeaf);
  SayWholeChunk(3, kLeaf);
  EXPECT_EQ(receiver_->Missing(),
            "relay 1 at b.0 from worker a, channel a.0 -> b.0: 0 of 1 chunks came");
  SayWholeChunk(5, 10);
  EXPECT_EQ(receiver_->Missing(), "the opening from worker a, channel a.0 -> b.0");
  EXPECT_TRUE(receiver_->expecting());
  EXPECT_FALSE(task_->progress.device_settled(1));
  SayOpening();
  EXPECT_EQ(receiver_->Missing(), "");
  EXPECT_FALSE(receiver_->expecting());
  EXPECT_TRUE(receiver_->finished());
  EXPECT_TRUE(task_->progress.device_settled(1));
}

TEST_F(ReceiverCallsTest, AfterItsOpeningAChannelStillExpectsItsRelays) {
  Make(TwoRelays());
  SayOpening();
  EXPECT_TRUE(receiver_->expecting());
  EXPECT_TRUE(receiver_->finished());
}

TEST_F(ReceiverCallsTest, AChannelThatIsCompleteExpectsNothingOfTheNextAndFailsNoDevice) {
  Make(TwoSenders(), {.checksums = false});
  SayOpening();
  SayWholeChunk(1, kLeaf);
  EXPECT_FALSE(receiver_->expecting());
  EXPECT_EQ(receiver_->Missing(), "");
  receiver_->Fail(absl::UnavailableError("lost"));
  EXPECT_FALSE(task_->progress.device_settled(2));
  EXPECT_FALSE(task_->progress.settled(NodeOf(1)));
}

TEST_F(ReceiverCallsTest, OnlyWhatIsUnderWayCanStall) {
  constexpr int kRounds = StallCounter::kReceiverRoundsMax;
  Make(TwoRelays());
  for (int round = 0; round < 2 * kRounds; ++round) EXPECT_FALSE(receiver_->StalledOnRound());
  Say(MessageKind::kChunk, 1, kLeaf);
  for (int round = 0; round < kRounds; ++round) EXPECT_FALSE(receiver_->StalledOnRound());
  EXPECT_TRUE(receiver_->StalledOnRound());
}

TEST_F(ReceiverCallsTest, WhatMovesIsNotStalled) {
  constexpr int kRounds = StallCounter::kReceiverRoundsMax;
  Make(TwoRelays());
  Say(MessageKind::kChunk, 1, kLeaf);
  Say(MessageKind::kChunk, 2, kLeaf);
  for (int round = 0; round < kRounds; ++round) EXPECT_FALSE(receiver_->StalledOnRound());
  Complete(0);
  for (int round = 0; round < kRounds; ++round) EXPECT_FALSE(receiver_->StalledOnRound());
  EXPECT_TRUE(receiver_->StalledOnRound());
}

class SilentWaiter final : public StagingWaiter {
 public:
  void OnStagingFree() override {}
};

// Chunks of three leaves, in more pieces than the transport takes, and room for five leaves. The
// first channel has eleven chunks and their end, then a chunk of one leaf and its end.
class WaitingReceiverTest : public ReceiverCallsTest {
 protected:
  static constexpr int64_t kChunk = 3 * kLeaf;

  WaitingReceiverTest() {
    Make(MakeGatheringPlan("b.0", kChunk), {.staging_units = 5});
    const PreparedPart::Node& node = task_->part().nodes()[NodeOf(0)];
    CHECK_EQ(node.bytes(), 31 * kLeaf);
    small_ = static_cast<uint64_t>(node.chunks) + 2;
    CHECK_EQ(task_->EntryOf(0, 1).first_sequence, static_cast<int64_t>(small_));
    Say(MessageKind::kChunk, 1, task_->part().ChunkOf(node, 0).bytes());
    Say(MessageKind::kChunk, 2, task_->part().ChunkOf(node, 1).bytes());
    CHECK_EQ(receipts_.size(), 1U);
  }

  // Would another that asks for a leaf get it now?
  bool CanStageALeaf() {
    StagingPool& pool = task_->shared.receive_staging;
    SilentWaiter waiter;
    const auto staging = pool.Allocate(kLeaf, waiter);
    pool.Forget(waiter);
    return staging.has_value();
  }

  uint64_t small_ = 0;  // the number of the chunk of one leaf
};

TEST_F(WaitingReceiverTest, WhatWaitsForStagingIsReceivedInLine) {
  Say(MessageKind::kChunk, small_, kLeaf);
  EXPECT_THAT(receipts_, SizeIs(1));
  EXPECT_EQ(task_->context.transfers_open, 1);
  EXPECT_FALSE(CanStageALeaf());
  Complete(0);
  ASSERT_THAT(receipts_, SizeIs(3));
  EXPECT_EQ(receipts_[1].header.sequence, 2U);
  EXPECT_EQ(receipts_[2].header.sequence, small_);
  EXPECT_FALSE(receiver_->finished());
  Complete(1);
  Complete(2);
  EXPECT_TRUE(receiver_->finished());
  EXPECT_EQ(task_->context.transfers_open, 0);
  EXPECT_EQ(task_->shared.receive_staging.used_bytes(), 0);
  EXPECT_EQ(dropped(), 0);
}

TEST_F(WaitingReceiverTest, WhatHasFailedWhileItWaitedIsDropped) {
  Say(MessageKind::kChunk, small_, kLeaf);
  task_->progress.FailNode(NodeOf(0), absl::UnavailableError("gone"));
  Complete(0);
  EXPECT_EQ(dropped(), 1);
  ASSERT_THAT(receipts_, SizeIs(2));
  EXPECT_EQ(receipts_[1].header.sequence, small_);
}

TEST_F(WaitingReceiverTest, AChannelThatFailsWaitsForNothing) {
  receiver_->Fail(absl::UnavailableError("lost"));
  EXPECT_TRUE(CanStageALeaf());
  EXPECT_FALSE(receiver_->finished());
  Complete(0);
  EXPECT_TRUE(receiver_->finished());
  EXPECT_THAT(receipts_, SizeIs(1));
}

TEST_F(WaitingReceiverTest, AChannelThatGoesAwayHoldsUpNoOther) {
  receiver_.reset();
  EXPECT_TRUE(CanStageALeaf());
}

}  // namespace
}  // namespace crossmesh
