// What an executor makes of the messages of a peer that does not keep to the plan, or is lost in
// the middle of it.

#include "worker/executor/channel_receiver.h"

#include "common/base/check.h"
#include "common/testing/status_matchers.h"
#include "worker/executor/leaf_checksum.h"
#include "worker/executor/prepared_part.h"
#include "worker/executor/replay_runner.h"
#include "worker/executor/staging_pool.h"
#include "worker/executor/testing/executor_fixture.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/executor/wire_message.h"
#include "worker/transport/testing/inprocess_transport.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
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
using ::testing::SizeIs;

// A peer that says what the test wants it to say; the executor under test is the receiver, worker
// 1, for which the peer is worker 0.
class RawSenderTest : public ExecutorTest, private TransportSink {
 protected:
  explicit RawSenderTest(Plan plan, ExecutorOptions options = {})
      : ExecutorTest(options), plan_(std::move(plan)), memory_(plan_) {
    liar_ = *InProcessTransport::Create(fabric_, *this);
    loop_->AddSource(*liar_);
    spec_ = MakeSpec(1, plan_, memory_);
    spec_.peers[0].address = liar_->address();
    peer_ = *liar_->Connect(workers_[1].transport->address());
  }

  void StartTask() { CHECK_OK(workers_[1].executor->Start(spec_, workers_[1].reports)); }

  // Where a message differs from one of the task's first channel.
  struct Lie {
    uint64_t token_low = 6;
    uint32_t channel = 0;
    uint32_t instance = 0;
  };
  void Send(MessageKind kind, uint64_t sequence, std::span<const std::byte> payload, Lie lie) {
    const iovec& piece = payloads_.emplace_back(PieceOf(payload));
    liar_->Send(peer_,
                {.token_high = 5,
                 .token_low = lie.token_low,
                 .operation = kKey.operation,
                 .epoch = kKey.epoch,
                 .instance = lie.instance,
                 .channel = lie.channel,
                 .kind = static_cast<uint32_t>(kind),
                 .sequence = sequence},
                payload.empty() ? Pieces() : Pieces(&piece, 1), 0);
    ++said_;
  }
  // Until the receiver has taken or dropped it.
  void Say(MessageKind kind, uint64_t sequence, std::span<const std::byte> payload) {
    Say(kind, sequence, payload, Lie());
  }
  void Say(MessageKind kind, uint64_t sequence, std::span<const std::byte> payload, Lie lie) {
    Send(kind, sequence, payload, lie);
    AwaitTaken();
  }
  void AwaitTaken() {
    RunUntil("the receiver to take or drop what was sent", [&] { return taken_ == said_; });
    RunUntilIdle();
  }
  absl::Status DeviceStatus() {
    RunUntil("the report of a device", [&] { return !workers_[1].reports.devices.empty(); });
    return workers_[1].reports.devices[0].status;
  }
  int64_t dropped() { return workers_[1].executor->counters().messages_dropped; }
  const PreparedPart& part() const { return *spec_.part; }
  // As an honest peer opens the first channel.
  OpeningPayload Opening() const {
    return {
        .order = part().channels()[0].order, .chunk_bytes = part().chunk_bytes(), .checksums = 1};
  }

  const Plan plan_;
  const TileMemory memory_;
  const std::vector<std::byte> chunk_ = std::vector<std::byte>(Plan::kLeafBytes);
  TaskSpec spec_;
  std::unique_ptr<InProcessTransport> liar_;
  PeerId peer_;

 private:
  void OnMessage(std::unique_ptr<IncomingMessage> /*message*/) override {}
  void OnSent(Ticket /*ticket*/, const absl::Status& /*status*/) override { ++taken_; }
  void OnReceived(Ticket /*ticket*/, const absl::Status& /*status*/) override {}
  void OnPeerLost(PeerId /*peer*/, const absl::Status& /*status*/) override {}

  std::deque<iovec> payloads_;
  int said_ = 0;
  int taken_ = 0;
};

class LyingPeerTest : public RawSenderTest {
 protected:
  LyingPeerTest() : RawSenderTest(MakePlan("a.0", "b.0-1")) { StartTask(); }
};

TEST_F(LyingPeerTest, AnotherOrderFailsTheChannelWithBothDigests) {
  const OpeningPayload opening{.order = {1, 2}, .chunk_bytes = Plan::kLeafBytes, .checksums = 1};
  Say(MessageKind::kOpening, 0, std::as_bytes(std::span(&opening, 1)));
  EXPECT_THAT(DeviceStatus(), StatusIs(absl::StatusCode::kInternal,
                                       HasSubstr("found order 00000000000000010000000000000002")));
}

TEST_F(LyingPeerTest, AWrongTokenOrChannelIsDropped) {
  Say(MessageKind::kChunk, 1, chunk_, {.token_low = 7});
  EXPECT_EQ(dropped(), 1);
  Say(MessageKind::kChunk, 1, chunk_, {.channel = 99});
  EXPECT_EQ(dropped(), 2);
  EXPECT_THAT(workers_[1].reports.devices, IsEmpty());
}

TEST_F(LyingPeerTest, ADuplicateIsDropped) {
  Say(MessageKind::kChunk, 5, chunk_);
  EXPECT_EQ(dropped(), 0);
  Say(MessageKind::kChunk, 5, chunk_);
  EXPECT_EQ(dropped(), 1);
  EXPECT_THAT(workers_[1].reports.devices, IsEmpty());
}

// Counted once more, it would stand for a relay that has not come.
TEST_F(LyingPeerTest, ASecondOpeningIsDropped) {
  const OpeningPayload opening = Opening();
  Say(MessageKind::kOpening, 0, std::as_bytes(std::span(&opening, 1)));
  EXPECT_EQ(dropped(), 0);
  Say(MessageKind::kOpening, 0, std::as_bytes(std::span(&opening, 1)));
  EXPECT_EQ(dropped(), 1);
  EXPECT_THAT(workers_[1].reports.devices, IsEmpty());
}

TEST_F(LyingPeerTest, ASecondChecksumIsDropped) {
  const std::array<std::byte, 8> checksum = {};
  Say(MessageKind::kChecksum, 33, checksum);
  EXPECT_EQ(dropped(), 0);
  Say(MessageKind::kChecksum, 33, checksum);
  EXPECT_EQ(dropped(), 1);
  EXPECT_THAT(workers_[1].reports.devices, IsEmpty());
}

TEST_F(LyingPeerTest, AWrongSizeFailsTheChannel) {
  Say(MessageKind::kChunk, 1, std::span(chunk_).first(100));
  EXPECT_THAT(DeviceStatus(), StatusIs(absl::StatusCode::kInternal, HasSubstr("worker w0")));
}

TEST_F(LyingPeerTest, ANumberBehindTheEndFailsTheChannel) {
  Say(MessageKind::kChunk, 1000, chunk_);
  EXPECT_THAT(DeviceStatus(), StatusIs(absl::StatusCode::kInternal, HasSubstr("number 1000")));
}

TEST_F(LyingPeerTest, ANumberRightBehindTheEndFailsTheChannel) {
  Say(MessageKind::kChunk, 35, chunk_);
  ASSERT_THAT(workers_[1].reports.devices, SizeIs(1));
  EXPECT_THAT(workers_[1].reports.devices[0].status,
              StatusIs(absl::StatusCode::kInternal, HasSubstr("number 35")));
}

TEST_F(LyingPeerTest, ARelayThatFailedElsewhereNamesWhoIsToBlame) {
  std::array<std::byte, kFailureBytesMax> bytes;
  const size_t size = EncodeFailure(absl::UnavailableError("worker w9 is lost"), bytes);
  Say(MessageKind::kFailed, 33, std::span(bytes).first(size));
  EXPECT_EQ(DeviceStatus(), absl::UnavailableError("worker w9 is lost"));
}

// Chunks of three leaves, in more pieces than the transport takes, and room for five leaves.
class FullStagingTest : public RawSenderTest {
 protected:
  FullStagingTest()
      : RawSenderTest(MakeGatheringPlan("b.0", 3 * Plan::kLeafBytes),
                      {.staging_bytes = 2 * 5 * StagingPool::kUnitBytes}) {
    StartTask();
  }

  // Of an entry of the channel that has two; its chunks are all zero.
  void SendChunk(int32_t entry, int64_t chunk) {
    const PreparedPart::Channel& channel =
        *std::ranges::find(part().channels(), 2, &PreparedPart::Channel::entry_count);
    const PreparedPart::Entry& sent = part().entries(channel)[entry];
    const int64_t bytes = part().ChunkOf(part().nodes()[sent.to_node], chunk).bytes();
    Send(MessageKind::kChunk, sent.first_sequence + chunk, std::span(zeros_).first(bytes),
         {.channel = static_cast<uint32_t>(channel.id)});
    sent_bytes_ += bytes;
  }

  const std::vector<std::byte> zeros_ = std::vector<std::byte>(3 * Plan::kLeafBytes);
  int64_t sent_bytes_ = 0;
};

TEST_F(FullStagingTest, ASmallChunkDoesNotPassOneThatWaits) {
  SendChunk(0, 0);
  SendChunk(0, 1);  // for which there is no room
  SendChunk(1, 0);  // for which there would be
  AwaitTaken();
  EXPECT_EQ(workers_[1].executor->MovedBytes(kKey), sent_bytes_);
  EXPECT_EQ(workers_[1].executor->counters().staging_bytes_used, 0);
}

class Outcomes final : public ReplayObserver {
 public:
  void OnDeviceDone(const TaskKey& key, const DeviceReport& report) override {
    devices.push_back(report);
    instances.push_back(key.instance);
  }
  void OnTaskDone(const TaskReport& report) override { done.push_back(report.key.instance); }
  void OnReplaysStopped(const ReplayKey& /*key*/) override {}

  std::vector<DeviceReport> devices;
  std::vector<uint32_t> instances;
  std::vector<uint32_t> done;
};

// Instances of a channel to one device, by a peer that says when what comes.
class LyingReplayTest : public RawSenderTest {
 protected:
  LyingReplayTest() : RawSenderTest(MakePlan("a.0", "a.1,b.0")) {
    ReplaySpec spec{.key = ReplayKeyOf(kKey),
                    .token_high = spec_.token_high,
                    .token_low = spec_.token_low,
                    .part = spec_.part,
                    .buffers = {{.sources = spec_.sources, .destinations = spec_.destinations}},
                    .peers = spec_.peers,
                    .peer_of_device = spec_.peer_of_device};
    CHECK_OK(replays().StartReplays(std::move(spec), outcomes_));
  }

  ReplayRunner& replays() { return workers_[1].executor->replays(); }
  void Begin(uint32_t instance) { replays().Replay(ReplayKeyOf(kKey), 0, instance); }
  Lie Of(uint32_t instance) const {
    return {.channel = static_cast<uint32_t>(part().channels()[0].id), .instance = instance};
  }
  void SayOpening(uint32_t instance) {
    const OpeningPayload opening = Opening();
    Say(MessageKind::kOpening, 0, std::as_bytes(std::span(&opening, 1)), Of(instance));
  }
  // All chunks, and the checksum of their root.
  void SayAllElse(uint32_t instance) {
    constexpr uint64_t kChunks = 32;
    std::vector<uint64_t> leaves(kChunks, HashLeaf(chunk_));
    for (uint64_t chunk = 0; chunk < kChunks; ++chunk) {
      Say(MessageKind::kChunk, 1 + chunk, chunk_, Of(instance));
    }
    const uint64_t checksum = ChecksumOfLeaves(leaves);
    Say(MessageKind::kChecksum, 1 + kChunks, std::as_bytes(std::span(&checksum, 1)), Of(instance));
  }

  Outcomes outcomes_;
};

TEST_F(LyingReplayTest, EveryInstanceNeedsAnOpeningOfItsOwn) {
  Begin(0);
  SayOpening(0);
  SayAllElse(0);
  RunUntil("the first instance to end", [&] { return outcomes_.done.size() == 1; });
  ASSERT_THAT(outcomes_.devices, SizeIs(1));
  EXPECT_OK(outcomes_.devices[0].status);

  Begin(1);
  SayAllElse(1);
  EXPECT_THAT(outcomes_.devices, SizeIs(1));
  liar_->Disconnect(peer_);
  RunUntil("the second instance to fail", [&] { return outcomes_.done.size() == 2; });
  EXPECT_THAT(outcomes_.instances, ElementsAre(0, 1));
  EXPECT_THAT(outcomes_.devices[1].status,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("worker w0 is lost")));
}

}  // namespace
}  // namespace crossmesh
