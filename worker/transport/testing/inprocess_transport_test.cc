#include "worker/transport/testing/inprocess_transport.h"

#include "common/testing/status_matchers.h"
#include "worker/transport/testing/transport_conformance.h"
#include "worker/transport/testing/transport_node.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

MakeTransport MakeOn(std::shared_ptr<InProcessFabric> fabric) {
  return [fabric = std::move(fabric)](TransportSink& sink) {
    return InProcessTransport::Create(*fabric, sink);
  };
}

// Delays change when things happen, not what.
const FaultPlan kLate = {.seed = 7, .delay_probability = 0.2, .delay_polls_max = 5};

INSTANTIATE_TEST_SUITE_P(
    All, TransportConformanceTest,
    testing::Values(
        TransportUnderTest{"InProcess", [] { return MakeOn(std::make_shared<InProcessFabric>()); }},
        TransportUnderTest{"InProcessLate",
                           [] { return MakeOn(std::make_shared<InProcessFabric>(kLate)); }}),
    TransportUnderTest::Name);

// Notes what happens on one of two transports that the test itself drives, step by step.
class NotingSink final : public TransportSink {
 public:
  void OnMessage(std::unique_ptr<IncomingMessage> message) override {
    channels.push_back(message->header().channel);
    sequences.push_back(message->header().sequence);
    into.assign(message->header().payload_bytes, std::byte{0});
    pieces = {PieceOf(into)};
    message->Receive(pieces, 0);
  }
  void OnSent(Ticket ticket, const absl::Status& status) override {
    (status.ok() ? sent : failed).push_back(ticket);
  }
  void OnReceived(Ticket /*ticket*/, const absl::Status& status) override {
    EXPECT_OK(status);
    received.push_back(into);
  }
  void OnPeerLost(PeerId peer, const absl::Status& /*status*/) override { lost.push_back(peer); }

  std::vector<uint32_t> channels;
  std::vector<uint64_t> sequences;
  std::vector<std::byte> into;
  std::vector<iovec> pieces;
  std::vector<std::vector<std::byte>> received;
  std::vector<Ticket> sent;
  std::vector<Ticket> failed;
  std::vector<PeerId> lost;
};

class FaultsTest : public testing::Test {
 protected:
  void Connect(const FaultPlan& faults) {
    fabric_ = std::make_unique<InProcessFabric>(faults);
    ASSERT_OK_AND_ASSIGN(a_, InProcessTransport::Create(*fabric_, at_a_));
    ASSERT_OK_AND_ASSIGN(b_, InProcessTransport::Create(*fabric_, at_b_));
    ASSERT_OK_AND_ASSIGN(to_b_, a_->Connect(b_->address()));
    ASSERT_OK_AND_ASSIGN(to_a_, b_->Connect(a_->address()));
  }

  void Send(Ticket ticket, uint32_t channel = 0) {
    a_->Send(to_b_, {.channel = channel, .sequence = ticket}, pieces_, ticket);
  }

  // Returns when nothing happens any more.
  void Run() {
    while (a_->Progress() + b_->Progress() > 0 || !a_->Arm() || !b_->Arm()) {
    }
  }

  NotingSink at_a_;
  NotingSink at_b_;
  std::vector<std::byte> payload_ = std::vector<std::byte>(100, std::byte{0x55});
  const std::vector<iovec> pieces_ = {PieceOf(payload_)};
  std::unique_ptr<InProcessFabric> fabric_;
  std::unique_ptr<InProcessTransport> a_;
  std::unique_ptr<InProcessTransport> b_;
  PeerId to_a_;
  PeerId to_b_;
};

TEST_F(FaultsTest, ADroppedMessageNeverCompletes) {
  Connect({.drop_probability = 1});
  Send(1);
  Run();
  EXPECT_THAT(at_b_.sequences, IsEmpty());
  EXPECT_THAT(at_a_.sent, IsEmpty());
  a_->Disconnect(to_b_);
  Run();
  EXPECT_THAT(at_a_.failed, ElementsAre(1));
}

TEST_F(FaultsTest, ACorruptedPayloadDiffersInOneBit) {
  Connect({.seed = 3, .corrupt_probability = 1});
  Send(1);
  Run();
  ASSERT_EQ(at_b_.received.size(), 1);
  int bits = 0;
  for (size_t i = 0; i < payload_.size(); ++i) {
    bits += std::popcount(static_cast<unsigned char>(payload_[i] ^ at_b_.received[0][i]));
  }
  EXPECT_EQ(bits, 1);
  EXPECT_THAT(at_a_.sent, ElementsAre(1));
}

TEST_F(FaultsTest, ALateMessageIsAnnouncedAfterMorePolls) {
  Connect({.delay_probability = 1, .delay_polls_max = 1});
  Send(1);
  b_->Progress();
  EXPECT_FALSE(b_->Arm());
  Run();
  EXPECT_THAT(at_b_.sequences, ElementsAre(1));
}

TEST_F(FaultsTest, ChannelsOvertakeEachOtherButKeepTheirOwnOrder) {
  Connect({.seed = 5, .delay_probability = 0.5, .reorder_channels = true});
  for (Ticket i = 0; i < 200; ++i) Send(i, i % 2);
  Run();
  ASSERT_EQ(at_b_.sequences.size(), 200);
  EXPECT_FALSE(std::is_sorted(at_b_.sequences.begin(), at_b_.sequences.end()));
  for (const uint32_t channel : {0U, 1U}) {
    uint64_t next = channel;
    for (size_t i = 0; i < 200; ++i) {
      if (at_b_.channels[i] != channel) continue;
      EXPECT_EQ(at_b_.sequences[i], next);
      next += 2;
    }
  }
}

TEST_F(FaultsTest, TheSameSeedGivesTheSameRun) {
  std::vector<std::vector<uint64_t>> runs;
  for (const uint64_t seed : {1, 1, 2}) {
    at_b_ = {};
    a_.reset();
    b_.reset();
    Connect({.seed = seed,
             .delay_probability = 0.5,
             .reorder_channels = true,
             .drop_probability = 0.2});
    for (Ticket i = 0; i < 100; ++i) Send(i, i % 5);
    Run();
    runs.push_back(at_b_.sequences);
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_NE(runs[0], runs[2]);
}

TEST_F(FaultsTest, ALinkIsCutAfterItsLastMessageAndBothSidesLoseIt) {
  Connect({.cut_after_messages = 2});
  for (Ticket i = 1; i <= 2; ++i) Send(i);
  Run();
  EXPECT_THAT(at_a_.sent, ElementsAre(1, 2));
  Send(3);
  Run();
  EXPECT_THAT(at_a_.failed, ElementsAre(3));
  EXPECT_THAT(at_a_.lost, ElementsAre(to_b_));
  EXPECT_THAT(at_b_.lost, ElementsAre(to_a_));
}

TEST_F(FaultsTest, TheTestCutsALinkWhenItWants) {
  Connect({});
  Send(1);
  fabric_->Cut(b_->address(), a_->address());
  Run();
  EXPECT_THAT(at_a_.failed, ElementsAre(1));
  EXPECT_THAT(at_b_.sequences, IsEmpty());
  EXPECT_THAT(at_a_.lost, ElementsAre(to_b_));
  EXPECT_THAT(at_b_.lost, ElementsAre(to_a_));
  // Later connections work.
  ASSERT_OK_AND_ASSIGN(to_b_, a_->Connect(b_->address()));
  Send(2);
  Run();
  EXPECT_THAT(at_a_.sent, ElementsAre(2));
}

TEST_F(FaultsTest, AKilledEndpointIsLostForGood) {
  Connect({});
  Send(1);
  fabric_->Kill(b_->address());
  Run();
  EXPECT_THAT(at_a_.failed, ElementsAre(1));
  EXPECT_THAT(at_a_.lost, ElementsAre(to_b_));
  EXPECT_THAT(at_b_.lost, ElementsAre(to_a_));
  ASSERT_OK_AND_ASSIGN(const PeerId again, a_->Connect(b_->address()));
  Run();
  EXPECT_THAT(at_a_.lost, ElementsAre(to_b_, again));
}

TEST_F(FaultsTest, FaultsOfOneDirectionLeaveTheOtherAlone) {
  Connect({});
  a_->Disconnect(to_b_);
  Run();
  fabric_->SetFaults(a_->address(), b_->address(), {.drop_probability = 1});
  ASSERT_OK_AND_ASSIGN(to_b_, a_->Connect(b_->address()));
  ASSERT_OK_AND_ASSIGN(to_a_, b_->Connect(a_->address()));
  Send(1);
  b_->Send(to_a_, {.sequence = 2}, pieces_, 2);
  Run();
  EXPECT_THAT(at_b_.sequences, IsEmpty());
  EXPECT_THAT(at_a_.sequences, ElementsAre(2));
}

}  // namespace
}  // namespace crossmesh
