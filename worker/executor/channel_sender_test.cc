#include "worker/executor/channel_sender.h"

#include "common/base/check.h"
#include "common/testing/status_matchers.h"
#include "worker/executor/leaf_checksum.h"
#include "worker/executor/send_window.h"
#include "worker/executor/staging_pool.h"
#include "worker/executor/stall_counter.h"
#include "worker/executor/testing/bare_task.h"
#include "worker/executor/testing/executor_fixture.h"
#include "worker/executor/wire_message.h"
#include "worker/transport/pieces.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

// Relays of three leaves and of ten bytes along a chain that begins at a.0.
Plan TwoRelays(const std::string& chain, const std::string& destination) {
  return PlanOfRelays(
      TensorOf(absl::StrCat("[", 3 * kLeaf + 10, "]: x=1 on a.0 [-] -> x=", destination, " [-]"),
               DataType::kU8),
      {{chain, 3 * kLeaf}, {chain, 10, {7, 9}}});
}

class CountingWaiter final : public StagingWaiter {
 public:
  void OnStagingFree() override { ++told; }

  int told = 0;
};

class ChannelSenderTest : public testing::Test {
 protected:
  // The only channel that leads from `host` to another one.
  void Make(Plan plan, const std::string& host, const BareTask::Options& options = {}) {
    sender_.reset();
    task_.reset();
    seen_ = taken_ = 0;
    plan_ = std::make_unique<const Plan>(std::move(plan));
    task_ = std::make_unique<BareTask>(*plan_, host, options);
    int32_t channel = 0;
    while (task_->part().channels()[channel].reach != PreparedPart::Reach::kOut) ++channel;
    channel_ = &task_->part().channels()[channel];
    sender_ = std::make_unique<ChannelSender>(task_->context, channel, window_, waiter_);
  }
  void MakeSimple(const BareTask::Options& options = {}) {
    Make(TwoRelays("a.0 > b.0", "1 on b.0"), "a", options);
  }

  // Kinds and numbers of all that it sends until there is nothing to do, since the last call.
  std::vector<std::pair<MessageKind, uint64_t>> SendAll() {
    while (sender_->ready()) sender_->SendNext();
    std::vector<std::pair<MessageKind, uint64_t>> messages;
    for (; seen_ < sent().size(); ++seen_) {
      const MessageHeader& header = sent()[seen_].header;
      messages.emplace_back(static_cast<MessageKind>(header.kind), header.sequence);
    }
    return messages;
  }
  // The peer has taken all.
  void TakeAll() {
    for (; taken_ < sent().size(); ++taken_) Take(taken_);
  }
  void Take(size_t message, const absl::Status& status = absl::OkStatus()) {
    sender_->OnSent(sent().at(message).ticket, status);
  }
  const std::vector<RecordingTransport::Sent>& sent() const { return task_->transport.sent; }
  static absl::Status FailureIn(const RecordingTransport::Sent& message) {
    const iovec& piece = message.payload.at(0);
    return DecodeFailure(std::span(static_cast<const std::byte*>(piece.iov_base), piece.iov_len));
  }
  // Would another that asks for a leaf get it now?
  bool CanStageALeaf() {
    StagingPool& pool = task_->shared.send_staging;
    CountingWaiter other;
    const auto staging = pool.Allocate(kLeaf, other);
    pool.Forget(other);
    return staging.has_value();
  }

  std::unique_ptr<const Plan> plan_;
  std::unique_ptr<BareTask> task_;
  const PreparedPart::Channel* channel_ = nullptr;
  SendWindow window_{PeerId(1)};
  CountingWaiter waiter_;
  std::unique_ptr<ChannelSender> sender_;
  size_t seen_ = 0;
  size_t taken_ = 0;
};

constexpr auto kOpening = MessageKind::kOpening;
constexpr auto kChunk = MessageKind::kChunk;
constexpr auto kChecksum = MessageKind::kChecksum;
constexpr auto kFailed = MessageKind::kFailed;

TEST_F(ChannelSenderTest, SendsItsOpeningAndEveryRelayWithItsChecksum) {
  MakeSimple();
  EXPECT_FALSE(sender_->waits_for_receiver());
  EXPECT_THAT(SendAll(),
              ElementsAre(Pair(kOpening, 0), Pair(kChunk, 1), Pair(kChunk, 2), Pair(kChunk, 3),
                          Pair(kChecksum, 4), Pair(kChunk, 5), Pair(kChecksum, 6)));
  EXPECT_FALSE(sender_->finished()) << "nothing was taken";
  EXPECT_EQ(window_.sent_bytes(), 3 * kLeaf + 10);
  TakeAll();
  EXPECT_TRUE(sender_->finished());
  EXPECT_EQ(task_->report.sent_bytes, 3 * kLeaf + 10);
  EXPECT_EQ(task_->shared.counters.At("local").sent, 3 * kLeaf + 10);
  EXPECT_EQ(window_.open(), 0);
  EXPECT_EQ(task_->context.transfers_open, 0);
}

TEST_F(ChannelSenderTest, WithoutChecksumsNothingFollowsTheChunks) {
  MakeSimple({.checksums = false});
  EXPECT_THAT(SendAll(), ElementsAre(Pair(kOpening, 0), Pair(kChunk, 1), Pair(kChunk, 2),
                                     Pair(kChunk, 3), Pair(kChunk, 5)));
  TakeAll();
  EXPECT_TRUE(sender_->finished());
}

TEST_F(ChannelSenderTest, ItsOpeningSaysWhatBothEndsMustAgreeOn) {
  for (const bool checksums : {true, false}) {
    MakeSimple({.checksums = checksums});
    sender_->SendNext();
    OpeningPayload opening;
    ASSERT_EQ(BytesOf(sent()[0].payload), sizeof(opening));
    std::memcpy(&opening, sent()[0].payload[0].iov_base, sizeof(opening));
    EXPECT_EQ(opening,
              (OpeningPayload{
                  .order = channel_->order, .chunk_bytes = kLeaf, .checksums = checksums ? 1 : 0}));
  }
}

TEST_F(ChannelSenderTest, ItsOpeningIsDueBeforeAllRelays) {
  MakeSimple();
  EXPECT_THAT(sender_->due(), Pair(-1, 0));
  sender_->SendNext();
  EXPECT_THAT(sender_->due(), Pair(0, 0));
  for (int i = 0; i < 4; ++i) sender_->SendNext();
  EXPECT_THAT(sender_->due(), Pair(7, 1));
}

TEST_F(ChannelSenderTest, PlansTheBytesOfAllItsRelays) {
  MakeSimple();
  EXPECT_EQ(sender_->planned_bytes(), 3 * kLeaf + 10);
  Make(MakeGatheringPlan("b.0", kLeaf), "a");
  EXPECT_EQ(sender_->planned_bytes(), 2 << 20) << "and not of the next channel";
}

TEST_F(ChannelSenderTest, AChunkThatDidNotGetThroughIsNotCounted) {
  MakeSimple();
  SendAll();
  Take(1, absl::UnavailableError("cut"));
  EXPECT_EQ(task_->report.sent_bytes, 0);
  EXPECT_EQ(window_.open_bytes(), 2 * kLeaf + 10);
  Take(2);
  EXPECT_EQ(task_->report.sent_bytes, kLeaf);
}

TEST_F(ChannelSenderTest, WaitsForItsReceiverEveryTime) {
  MakeSimple({.receivers_say_ready = true});
  for (int instance = 0; instance < 2; ++instance) {
    EXPECT_FALSE(sender_->ready());
    EXPECT_TRUE(sender_->waits_for_receiver());
    EXPECT_FALSE(sender_->finished());
    sender_->OnReady();
    EXPECT_FALSE(sender_->waits_for_receiver());
    EXPECT_THAT(SendAll(), SizeIs(7));
    TakeAll();
    EXPECT_TRUE(sender_->finished());
    sender_->Rewind();
  }
}

TEST_F(ChannelSenderTest, AReceiverThatIsNotThereIsToldOfNoFailure) {
  MakeSimple({.receivers_say_ready = true});
  sender_->Close(absl::CancelledError("enough"));
  EXPECT_THAT(sent(), IsEmpty());
  EXPECT_FALSE(sender_->waits_for_receiver());
  EXPECT_TRUE(sender_->finished());
  sender_->OnReady();
  EXPECT_FALSE(sender_->ready());
}

TEST_F(ChannelSenderTest, AReceiverIsToldOnceThatAllThatIsLeftFails) {
  MakeSimple();
  sender_->SendNext();
  sender_->SendNext();
  for (int i = 0; i < 2; ++i) sender_->Close(absl::CancelledError("enough"));
  EXPECT_THAT(SendAll(), ElementsAre(Pair(kOpening, 0), Pair(kChunk, 1), Pair(kFailed, 7)));
  EXPECT_EQ(FailureIn(sent()[2]), absl::CancelledError("enough"));
  EXPECT_FALSE(sender_->finished());
  TakeAll();
  EXPECT_TRUE(sender_->finished());
  // The next instance is another one.
  sender_->Rewind();
  EXPECT_THAT(SendAll(), SizeIs(7));
}

TEST_F(ChannelSenderTest, WhenAllIsSentNothingFails) {
  MakeSimple();
  EXPECT_THAT(SendAll(), SizeIs(7));
  sender_->Close(absl::CancelledError("enough"));
  EXPECT_THAT(sent(), SizeIs(7));
}

TEST_F(ChannelSenderTest, ToAPeerThatIsGoneNothingIsSent) {
  MakeSimple();
  sender_->SendNext();
  sender_->Drop();
  EXPECT_FALSE(sender_->ready());
  EXPECT_THAT(sent(), SizeIs(1));
  EXPECT_FALSE(sender_->finished());
  TakeAll();
  EXPECT_TRUE(sender_->finished());
}

TEST_F(ChannelSenderTest, ARelayThatFailedBeforeItsTimeIsEndedByItsReason) {
  Make(TwoRelays("a.0 > b.0 > c.0", "2 on b.0,c.0"), "b");
  EXPECT_THAT(SendAll(), ElementsAre(Pair(kOpening, 0)));
  const int32_t failed = task_->part().entries(*channel_)[0].from_node;
  task_->progress.FailNode(failed, absl::DataLossError("bytes differ"));
  sender_->OnProgress(0);
  EXPECT_THAT(SendAll(), ElementsAre(Pair(kFailed, 4)));
  EXPECT_EQ(FailureIn(sent()[1]), absl::DataLossError("bytes differ"));
  TakeAll();
  EXPECT_FALSE(sender_->finished()) << "the other relay may come";
}

TEST_F(ChannelSenderTest, WhatIsForwardedGoesWhenItIsHereAndItsChecksumAfterIt) {
  Make(TwoRelays("a.0 > b.0 > c.0", "2 on b.0,c.0"), "b");
  SendAll();
  const int32_t node = task_->part().entries(*channel_)[1].from_node;
  const std::byte* const tile = task_->spec.destinations.at(1).tensor[0];
  const std::span<uint64_t> hashes = task_->progress.LeafHashes({.node = node, .chunk = 0});
  hashes[0] = HashLeaf(std::span(tile + 3 * kLeaf, 10));
  const uint64_t checksum = ChecksumOfLeaves(hashes);
  task_->progress.OnChunkInPlace({.node = node, .chunk = 0});
  sender_->OnProgress(1);
  EXPECT_THAT(SendAll(), ElementsAre(Pair(kChunk, 5)));
  EXPECT_EQ(sent()[1].payload.at(0).iov_base, tile + 3 * kLeaf);
  task_->progress.OnRootChecksum(node, checksum);
  sender_->OnProgress(1);
  EXPECT_THAT(SendAll(), ElementsAre(Pair(kChecksum, 6)));
  EXPECT_EQ(std::memcmp(sent()[2].payload.at(0).iov_base, &checksum, sizeof(checksum)), 0);
}

TEST_F(ChannelSenderTest, OnlyWhatIsUnderWayCanStall) {
  constexpr int kRounds = StallCounter::kRoundsMax;
  MakeSimple();
  for (int round = 0; round < 2 * kRounds; ++round) EXPECT_FALSE(sender_->StalledOnRound());
  sender_->SendNext();
  for (int round = 0; round < kRounds; ++round) EXPECT_FALSE(sender_->StalledOnRound());
  EXPECT_TRUE(sender_->StalledOnRound());
}

TEST_F(ChannelSenderTest, WhatIsTakenIsNotStalled) {
  constexpr int kRounds = StallCounter::kRoundsMax;
  MakeSimple();
  SendAll();
  for (int round = 0; round < kRounds; ++round) EXPECT_FALSE(sender_->StalledOnRound());
  Take(0);
  for (int round = 0; round < kRounds; ++round) EXPECT_FALSE(sender_->StalledOnRound());
  EXPECT_TRUE(sender_->StalledOnRound());
}

TEST_F(ChannelSenderTest, AChunkInFewPiecesIsSentFromWhereItLies) {
  Make(MakePlan("a.0", "b.0-1"), "a");
  sender_->SendNext();
  sender_->SendNext();
  const std::vector<iovec>& pieces = sent().at(1).payload;
  ASSERT_THAT(pieces, SizeIs(2));  // half of a row each
  const std::byte* const tile = task_->spec.sources.at(0).tensor[0];
  EXPECT_EQ(pieces[0].iov_base, tile);
  EXPECT_EQ(pieces[1].iov_base, tile + 16384 * 4);
  EXPECT_EQ(task_->shared.send_staging.used_bytes(), 0);
}

// Chunks of three leaves, in more pieces than the transport takes, and room for five leaves.
class WaitingSenderTest : public ChannelSenderTest {
 protected:
  WaitingSenderTest() {
    Plan::Spec spec = MakePlan("a.0", "b.0-1").spec();
    spec.chunk_bytes = 3 * kLeaf;
    Make(*Plan::Create(std::move(spec)), "a", {.staging_units = 5});
    CHECK_EQ(SendAll().size(), 2U);
  }
};

TEST_F(WaitingSenderTest, WhatIsInManyPiecesWaitsForStaging) {
  const int64_t staged = static_cast<int64_t>(BytesOf(sent()[1].payload));
  EXPECT_THAT(sent()[1].payload, SizeIs(1));
  EXPECT_EQ(task_->shared.send_staging.used_bytes(), 3 * StagingPool::kUnitBytes);
  EXPECT_EQ(task_->context.transfers_open, 2);
  EXPECT_EQ(window_.open(), 2);
  sender_->OnProgress(0);
  EXPECT_FALSE(sender_->ready());
  EXPECT_FALSE(CanStageALeaf()) << "it stands in line";
  Take(1);
  EXPECT_EQ(waiter_.told, 1);
  EXPECT_EQ(task_->report.sent_bytes, staged);
  EXPECT_EQ(task_->shared.send_staging.used_bytes(), 0);
  sender_->OnStagingFree();
  EXPECT_THAT(SendAll(), ElementsAre(Pair(kChunk, 2)));
}

TEST_F(WaitingSenderTest, AChannelThatIsDroppedWaitsForNothing) {
  sender_->Drop();
  EXPECT_TRUE(CanStageALeaf());
}

TEST_F(WaitingSenderTest, AChannelThatGoesAwayHoldsUpNoOther) {
  sender_.reset();
  EXPECT_TRUE(CanStageALeaf());
}

TEST_F(WaitingSenderTest, ARewoundChannelDoesNotWait) {
  sender_->Close(absl::CancelledError("enough"));
  Take(0);
  Take(1);
  Take(2);
  EXPECT_TRUE(sender_->finished());
  sender_->Rewind();
  EXPECT_TRUE(sender_->ready());
  EXPECT_THAT(sender_->due(), Pair(-1, 0));
}

}  // namespace
}  // namespace crossmesh
