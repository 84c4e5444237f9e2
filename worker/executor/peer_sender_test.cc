#include "worker/executor/peer_sender.h"

#include "worker/executor/send_window.h"
#include "worker/executor/testing/bare_task.h"
#include "worker/executor/testing/recording_transport.h"
#include "worker/executor/wire_message.h"

#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr auto kOpeningKind = MessageKind::kOpening;
constexpr auto kChunkKind = MessageKind::kChunk;
constexpr auto kChecksumKind = MessageKind::kChecksum;

// Relays of so many bytes from a.0 to b.0, each of one chunk if none is longer than a chunk.
Plan RelaysOf(const std::vector<int64_t>& bytes, Plan::Spec rest = {.chunk_bytes = kLeaf}) {
  int64_t all = 0;
  std::vector<PlannedRelay> relays;
  for (const int64_t of_relay : bytes) {
    relays.push_back({.chain = "a.0 > b.0", .bytes = of_relay});
    all += of_relay;
  }
  return PlanOfRelays(
      TensorOf(absl::StrCat("[", all, "]: x=1 on a.0 [-] -> x=1 on b.0 [-]"), DataType::kU8),
      relays, std::move(rest));
}

class PeerSenderTest : public testing::Test {
 protected:
  // All channels that lead from a.0 to other workers, to one peer.
  void Make(Plan plan, const BareTask::Options& options = {}) {
    sender_.reset();
    task_.reset();
    seen_ = 0;
    plan_ = std::make_unique<const Plan>(std::move(plan));
    task_ = std::make_unique<BareTask>(*plan_, "a", options);
    sender_ = std::make_unique<PeerSender>(task_->context, PeerId(1));
    channels_.clear();
    for (int32_t i = 0; i < std::ssize(task_->part().channels()); ++i) {
      channels_.push_back(&sender_->Add(i));
    }
  }

  const std::vector<RecordingTransport::Sent>& sent() const { return task_->transport.sent; }
  // Kinds of what was sent since the last call, with the channels.
  std::vector<std::pair<MessageKind, uint32_t>> Sent() {
    std::vector<std::pair<MessageKind, uint32_t>> messages;
    for (; seen_ < sent().size(); ++seen_) {
      const MessageHeader& header = sent()[seen_].header;
      messages.emplace_back(static_cast<MessageKind>(header.kind), header.channel);
    }
    return messages;
  }
  void Take(size_t message, int32_t channel = 0) {
    channels_.at(channel)->OnSent(sent().at(message).ticket, absl::OkStatus());
  }
  // What is under way when as much was sent as the window lets through.
  const SendWindow& Fill() {
    sender_->Pump();
    sender_->Step();
    return sender_->window();
  }

  std::unique_ptr<const Plan> plan_;
  std::unique_ptr<BareTask> task_;
  std::unique_ptr<PeerSender> sender_;
  std::vector<ChannelSender*> channels_;
  size_t seen_ = 0;
};

TEST_F(PeerSenderTest, TheWindowIsTwoPeriodsOfWhatIsPlanned) {
  struct Case {
    int32_t periods = 0;
    int64_t leaves = 0;  // under way
  };
  // 32 relays of a leaf; a chunk may have eight. A period has at least two.
  for (const Case& one :
       {Case{0, 16}, Case{1, 16}, Case{4, 16}, Case{8, 8}, Case{32, 4}, Case{1 << 20, 4}}) {
    Make(RelaysOf(std::vector<int64_t>(32, kLeaf),
                  {.chunk_bytes = 8 * kLeaf, .periods = one.periods}),
         {.checksums = false});
    EXPECT_EQ(Fill().open_bytes(), one.leaves * kLeaf) << one.periods << " periods";
  }
}

TEST_F(PeerSenderTest, WithPeriodsASmallChunkIsAWholeOne) {
  Make(RelaysOf(std::vector<int64_t>(8, kLeaf), {.chunk_bytes = kLeaf, .periods = 1 << 20}),
       {.checksums = false});
  EXPECT_EQ(Fill().open_bytes(), 2 * kLeaf);
}

TEST_F(PeerSenderTest, AFullWindowHoldsUpChecksumsAsWell) {
  Make(RelaysOf(std::vector<int64_t>(4, kLeaf), {.chunk_bytes = 8 * kLeaf, .periods = 1}),
       {.window_periods = 1});
  // The opening, four chunks, and the checksums of all but the last.
  EXPECT_EQ(Fill().open(), 8);
}

TEST_F(PeerSenderTest, TheWindowIsThatOfAllLanes) {
  for (const int lanes : {1, 2, 3}) {
    Make(RelaysOf(std::vector<int64_t>(16, kLeaf)), {.checksums = false, .lanes = lanes});
    EXPECT_EQ(Fill().open_bytes(), 2 * lanes * kLeaf);
  }
}

TEST_F(PeerSenderTest, AByteOfRoomIsEnoughForAChunk) {
  Make(RelaysOf({kLeaf, kLeaf - 1, 10, 10}), {.checksums = false});
  EXPECT_EQ(Fill().open_bytes(), 2 * kLeaf - 1 + 10);
}

TEST_F(PeerSenderTest, NoMoreMessagesAreUnderWayThanALaneTakes) {
  for (const int lanes : {1, 2}) {
    Make(RelaysOf(std::vector<int64_t>(80, 16)), {.checksums = false, .lanes = lanes});
    EXPECT_EQ(Fill().open(), 32 * lanes);
    Take(0);
    sender_->Pump();
    EXPECT_EQ(sender_->window().open(), 32 * lanes);
  }
}

TEST_F(PeerSenderTest, TheFirstChunkAfterAPauseGoesAlone) {
  Make(RelaysOf({kLeaf, kLeaf, kLeaf, kLeaf, kLeaf}), {.checksums = false, .lanes = 2});
  sender_->Pump();
  sender_->Pump();
  EXPECT_THAT(Sent(), ElementsAre(Pair(kOpeningKind, 0), Pair(kChunkKind, 0)));
  EXPECT_EQ(task_->RunLoop(), 1);
  EXPECT_EQ(task_->steps, 1);
  sender_->Step();
  EXPECT_THAT(Sent(), SizeIs(3));
  // What is taken makes room.
  Take(1);
  sender_->Step();
  EXPECT_THAT(Sent(), IsEmpty()) << "a step sends only what had to wait for it";
  sender_->Pump();
  EXPECT_THAT(Sent(), ElementsAre(Pair(kChunkKind, 0)));
  EXPECT_EQ(task_->RunLoop(), 0);
}

TEST_F(PeerSenderTest, AFirstChunkOfAByteGoesAloneToo) {
  Make(RelaysOf({1, kLeaf}), {.checksums = false});
  sender_->Pump();
  EXPECT_THAT(Sent(), SizeIs(2));
}

TEST_F(PeerSenderTest, AChunkBeforeAByteGoesAloneToo) {
  Make(RelaysOf({kLeaf, 1}), {.checksums = false});
  sender_->Pump();
  EXPECT_THAT(Sent(), SizeIs(2));
}

TEST_F(PeerSenderTest, WhenNothingFollowsAChunkItsChecksumGoesWithIt) {
  Make(RelaysOf({kLeaf}));
  sender_->Pump();
  EXPECT_THAT(Sent(),
              ElementsAre(Pair(kOpeningKind, 0), Pair(kChunkKind, 0), Pair(kChecksumKind, 0)));
  EXPECT_EQ(task_->RunLoop(), 0);
}

// To b.0 and b.1, of the halves of a tensor.
Plan TwoChannels(const DueTime& first, const DueTime& second) {
  return PlanOfRelays(
      TensorOf(absl::StrCat("[", 2 * kLeaf, "]: x=1 on a.0 [-] -> x=2 on b.0-1 [x]"),
               DataType::kU8),
      {{.chain = "a.0 > b.0", .due = first},
       {.chain = "a.0 > b.1", .due = second, .slice_class = 1}});
}

TEST_F(PeerSenderTest, WhatIsDueFirstOfAllChannelsGoesFirst) {
  Make(TwoChannels({2, 3}, {1, 2}), {.checksums = false});
  Fill();
  EXPECT_THAT(Sent(), ElementsAre(Pair(kOpeningKind, 0), Pair(kOpeningKind, 1), Pair(kChunkKind, 1),
                                  Pair(kChunkKind, 0)));
  Make(TwoChannels({1, 2}, {1, 2}), {.checksums = false});
  Fill();
  EXPECT_THAT(Sent(), ElementsAre(Pair(kOpeningKind, 0), Pair(kOpeningKind, 1), Pair(kChunkKind, 0),
                                  Pair(kChunkKind, 1)));
}

TEST_F(PeerSenderTest, RewoundItBeginsWithTheFirstChunkAndAnEmptyWindow) {
  Make(RelaysOf({kLeaf, kLeaf}), {.checksums = false});
  sender_->Pump();
  EXPECT_THAT(Sent(), SizeIs(2));
  channels_[0]->Drop();
  Take(0);
  Take(1);
  sender_->Rewind();
  EXPECT_EQ(sender_->window().sent_bytes(), 0);
  sender_->Pump();
  EXPECT_THAT(Sent(), ElementsAre(Pair(kOpeningKind, 0), Pair(kChunkKind, 0)));
  EXPECT_EQ(sender_->window().sent_bytes(), kLeaf);
}

// Senders to two peers share the staging, which has room for one chunk of two leaves in many
// pieces.
TEST_F(PeerSenderTest, StagingThatOnePeerFreesLetsAnotherBeSentTo) {
  const Plan plan = PlanOfRelays(
      TensorOf("[16, 16384]: x=1 on a.0 [-, -] -> x=2 on b.0,c.0 [-, x]", DataType::kU8),
      {{"a.0 > b.0"}, {.chain = "a.0 > c.0", .slice_class = 1}}, {.chunk_bytes = 2 * kLeaf});
  BareTask task(plan, "a", {.checksums = false, .staging_units = 3});
  PeerSender to_b(task.context, PeerId(1));
  PeerSender to_c(task.context, PeerId(2));
  ChannelSender& channel_to_b = to_b.Add(0);
  to_c.Add(1);
  to_b.Pump();
  to_c.Pump();
  ASSERT_THAT(task.transport.sent, SizeIs(3)) << "both openings, and a chunk";
  EXPECT_EQ(task.transport.sent[1].header.payload_bytes, 2U * kLeaf);
  channel_to_b.OnSent(task.transport.sent[1].ticket, absl::OkStatus());
  ASSERT_THAT(task.transport.sent, SizeIs(4));
  EXPECT_EQ(task.transport.sent[3].peer, PeerId(2));
}

// A plan that takes an hour, of which next to nothing has gone by; the loop's clock stands still.
class SlowPeerTest : public PeerSenderTest {
 protected:
  SlowPeerTest() {
    Make(RelaysOf({kLeaf, kLeaf, kLeaf, kLeaf},
                  {.chunk_bytes = kLeaf, .least_run_ns = int64_t{3600} * 1'000'000'000}),
         {.checksums = false});
  }
  // Returns how many timers were due.
  int LetAnHourGoBy() {
    task_->clock.Advance(absl::Hours(1));
    return task_->RunLoop();
  }
};

TEST_F(SlowPeerTest, TheFirstChunkGoesAtOnceAndTheOthersWhenTheirTimeHasCome) {
  sender_->Pump();
  EXPECT_THAT(Sent(), ElementsAre(Pair(kOpeningKind, 0), Pair(kChunkKind, 0)));
  EXPECT_EQ(task_->RunLoop(), 1);
  sender_->Step();
  sender_->Pump();
  EXPECT_THAT(Sent(), IsEmpty());
  EXPECT_EQ(task_->RunLoop(), 0);
  // The timer looks at the time of the execution, and finds that it is too soon.
  for (int i = 0; i < 3; ++i) EXPECT_EQ(LetAnHourGoBy(), 1);
  EXPECT_THAT(Sent(), IsEmpty());
}

TEST_F(SlowPeerTest, ATimerEndsWithItsInstance) {
  for (int instance = 0; instance < 2; ++instance) {
    Fill();
    EXPECT_EQ(task_->RunLoop(), 1);
    channels_[0]->Drop();
    Take(2 * instance);
    Take(2 * instance + 1);
    if (instance == 1) {
      EXPECT_EQ(LetAnHourGoBy(), 1) << "the second one has a timer of its own";
    }
    sender_->Rewind();
    EXPECT_EQ(LetAnHourGoBy(), 0);
  }
}

TEST_F(SlowPeerTest, ATimerEndsWithTheSender) {
  Fill();
  EXPECT_EQ(task_->RunLoop(), 1);
  sender_.reset();
  EXPECT_EQ(LetAnHourGoBy(), 0);
}

}  // namespace
}  // namespace crossmesh
