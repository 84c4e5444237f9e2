// What becomes of a peer when one of its lanes is lost, step by step over in-process transports.

#include "common/base/check.h"
#include "common/testing/status_matchers.h"
#include "worker/transport/striped/striped_transport.h"
#include "worker/transport/testing/inprocess_transport.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kMessagesSent = 12;

// Parks what comes, and notes what else happens.
class NotingSink final : public TransportSink {
 public:
  void OnMessage(std::unique_ptr<IncomingMessage> message) override {
    held.push_back(std::move(message));
  }
  void OnSent(Ticket /*ticket*/, const absl::Status& status) override { sent.push_back(status); }
  void OnReceived(Ticket /*ticket*/, const absl::Status& status) override {
    received.push_back(status);
  }
  void OnPeerLost(PeerId peer, const absl::Status& status) override {
    lost.push_back({peer, status});
    sent_before_loss = sent.size();
    received_before_loss = received.size();
    if (on_lost) on_lost(peer);
  }

  std::vector<std::unique_ptr<IncomingMessage>> held;
  std::vector<absl::Status> sent;
  std::vector<absl::Status> received;
  std::vector<std::pair<PeerId, absl::Status>> lost;
  size_t sent_before_loss = 0;
  size_t received_before_loss = 0;
  std::function<void(PeerId)> on_lost;
};

// Two transports of two NICs each, connected both ways.
class StripedLossTest : public testing::Test {
 protected:
  struct Side {
    NotingSink sink;
    std::vector<std::string> nics;
    std::unique_ptr<StripedTransport> transport;
    PeerId peer;
  };

  StripedLossTest() {
    for (Side& side : sides_) {
      const std::vector<StripedTransport::MakeNic> makers(2, [&](TransportSink& sink) {
        auto nic = InProcessTransport::Create(fabric_, sink);
        CHECK_OK(nic);
        side.nics.push_back((*nic)->address());
        return nic;
      });
      side.transport = *StripedTransport::Create(side.sink, makers);
    }
    a_.peer = *a_.transport->Connect(b_.transport->address());
    b_.peer = *b_.transport->Connect(a_.transport->address());
  }
  ~StripedLossTest() override {
    for (Side& side : sides_) side.sink.held.clear();
  }

  void SendAll() {
    for (Ticket i = 0; i < kMessagesSent; ++i) a_.transport->Send(a_.peer, {}, pieces_, i);
  }
  void ReceiveHeld() {
    for (const auto& message : b_.sink.held) message->Receive(pieces_, 0);
  }

  // Returns when nothing happens any more.
  void Run() {
    while (a_.transport->Progress() + b_.transport->Progress() > 0 || !a_.transport->Arm() ||
           !b_.transport->Arm()) {
    }
  }

  std::vector<std::byte> payload_ = std::vector<std::byte>(100);
  const std::vector<iovec> pieces_ = {PieceOf(payload_)};
  InProcessFabric fabric_;
  Side sides_[2];
  Side& a_ = sides_[0];
  Side& b_ = sides_[1];
};

TEST_F(StripedLossTest, OneLaneLostIsThePeerLostOnceAtBothSides) {
  SendAll();
  Run();
  ASSERT_THAT(b_.sink.held, SizeIs(kMessagesSent));
  ReceiveHeld();
  fabric_.Cut(a_.nics[1], b_.nics[0]);
  Run();
  for (const Side* side : {&a_, &b_}) {
    ASSERT_THAT(side->sink.lost, SizeIs(1));
    EXPECT_EQ(side->sink.lost[0].first, side->peer);
    EXPECT_THAT(side->sink.lost[0].second,
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("the link was cut")));
  }
  EXPECT_EQ(a_.sink.sent_before_loss, kMessagesSent);
  EXPECT_EQ(b_.sink.received_before_loss, kMessagesSent);
  EXPECT_THAT(a_.sink.sent, Each(StatusIs(absl::StatusCode::kUnavailable)));
}

TEST_F(StripedLossTest, WhatIsSentBetweenFailsBeforeTheLossIsTold) {
  fabric_.Cut(a_.nics[0], b_.nics[1]);
  a_.transport->Progress();
  ASSERT_THAT(a_.sink.lost, IsEmpty());
  SendAll();
  Run();
  ASSERT_THAT(a_.sink.lost, SizeIs(1));
  EXPECT_EQ(a_.sink.sent_before_loss, kMessagesSent);
  EXPECT_THAT(a_.sink.sent, Each(StatusIs(absl::StatusCode::kUnavailable)));
}

TEST_F(StripedLossTest, APeerDisconnectedWhileItIsBeingLostIsNotTold) {
  SendAll();
  fabric_.Cut(a_.nics[0], b_.nics[1]);
  a_.transport->Progress();
  ASSERT_THAT(a_.sink.lost, IsEmpty());
  EXPECT_EQ(a_.transport->link(a_.peer), "local");
  a_.transport->Disconnect(a_.peer);
  Run();
  EXPECT_THAT(a_.sink.lost, IsEmpty());
  EXPECT_THAT(a_.sink.sent, SizeIs(kMessagesSent));
  EXPECT_THAT(b_.sink.lost, SizeIs(1));
}

TEST_F(StripedLossTest, DisconnectEndsAllLanes) {
  SendAll();
  Run();
  a_.transport->Disconnect(a_.peer);
  Run();
  EXPECT_THAT(a_.sink.lost, IsEmpty());
  EXPECT_THAT(a_.sink.sent,
              AllOf(SizeIs(kMessagesSent), Each(StatusIs(absl::StatusCode::kCancelled))));
  EXPECT_THAT(b_.sink.lost, SizeIs(1));
}

TEST_F(StripedLossTest, TheSecondConnectionsOfBothSidesAreOneAgain) {
  fabric_.Cut(a_.nics[0], b_.nics[0]);
  Run();
  a_.peer = *a_.transport->Connect(b_.transport->address());
  b_.peer = *b_.transport->Connect(a_.transport->address());
  SendAll();
  Run();
  EXPECT_THAT(b_.sink.held, SizeIs(kMessagesSent));
  ReceiveHeld();
  Run();
  EXPECT_THAT(a_.sink.sent, AllOf(SizeIs(kMessagesSent), Each(IsOk())));
  fabric_.Cut(a_.nics[1], b_.nics[1]);
  Run();
  EXPECT_EQ(a_.sink.lost.back().first, a_.peer);
  EXPECT_EQ(b_.sink.lost.back().first, b_.peer);
}

TEST_F(StripedLossTest, TheSinkMayConnectAndSendWhileItIsTold) {
  a_.sink.on_lost = [&](PeerId lost) {
    a_.transport->Send(lost, {}, pieces_, 0);
    a_.peer = *a_.transport->Connect(b_.transport->address());
    a_.transport->Send(a_.peer, {}, pieces_, 1);
  };
  fabric_.Kill(b_.nics[1]);
  fabric_.Cut(a_.nics[0], b_.nics[0]);
  a_.transport->Progress();
  a_.transport->Progress();
  a_.sink.on_lost = nullptr;
  ASSERT_THAT(a_.sink.lost, SizeIs(1));
  Run();
  // The new one is lost as well: one of its lanes leads nowhere.
  EXPECT_THAT(a_.sink.lost, SizeIs(2));
  EXPECT_THAT(a_.sink.sent, AllOf(SizeIs(2), Each(StatusIs(absl::StatusCode::kUnavailable))));
}

}  // namespace
}  // namespace crossmesh
