// The part of transport_conformance.h about connections that end.

#pragma once

#include "common/testing/status_matchers.h"
#include "worker/transport/testing/transport_conformance_fixture.h"
#include "worker/transport/testing/transport_node.h"

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {

TEST_P(TransportConformanceTest, DisconnectCompletesSends) {
  TransportNode& a = AddNode();
  TransportNode& b = AddNode(Arrival::kPark);
  const PeerId to_b = Warm(a, b);
  const PeerId to_a = Connect(b, a);
  const Ticket first = a.SendMany(to_b, 8, kLarge);
  ASSERT_TRUE(WaitAnnounced(b, 9));
  b.ReceiveHeld(1, 4);
  a.Disconnect(to_b);
  ASSERT_TRUE(WaitSent(a, 8 + 1));
  TransportRecord record = a.record();
  int got_through = 0;
  for (Ticket ticket = first; ticket < first + 8; ++ticket) {
    const absl::Status& status = record.sent[ticket];
    EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
    got_through += status.ok() ? 1 : 0;
  }
  // Those that were being received may have.
  EXPECT_LE(got_through, 4);
  EXPECT_THAT(record.lost, testing::IsEmpty());
  b.ReceiveHeld(5, 4);
  EXPECT_TRUE(WaitReceived(b, 8));
  EXPECT_TRUE(WaitLost(b, to_a));
}

TEST_P(TransportConformanceTest, DisconnectCompletesReceives) {
  TransportNode& a = AddNode();
  TransportNode& b = AddNode(Arrival::kPark);
  const PeerId to_b = Connect(a, b);
  const PeerId to_a = Connect(b, a);
  a.SendMany(to_b, 8, 8 << 20);
  ASSERT_TRUE(WaitAnnounced(b, 8));
  b.ReceiveHeldAndDisconnect(to_a);
  ASSERT_TRUE(WaitReceived(b, 8));
  EXPECT_THAT(b.record().lost, testing::IsEmpty());
  EXPECT_TRUE(WaitLost(a, to_b));
  EXPECT_TRUE(WaitSent(a, 8));
}

TEST_P(TransportConformanceTest, AConnectionThatIsBrokenIsLostAtBothEnds) {
  TransportNode& a = AddNode(Arrival::kPark);
  TransportNode& b = AddNode(Arrival::kPark);
  const PeerId to_b = Warm(a, b);
  const PeerId to_a = Warm(b, a);
  const Ticket first = a.SendMany(to_b, 8, kLarge);
  b.SendMany(to_a, 8, kLarge);
  ASSERT_TRUE(WaitAnnounced(a, 9));
  a.ReceiveHeld(1, 4);
  a.Break(to_b, absl::UnavailableError("the test broke it"));
  a.Break(to_b, absl::UnavailableError("again"));
  ASSERT_TRUE(WaitLost(a, to_b));
  EXPECT_TRUE(WaitLost(b, to_a));
  TransportRecord record = a.record();
  ASSERT_EQ(record.lost.size(), 1);
  EXPECT_THAT(record.lost[0].status,
              StatusIs(absl::StatusCode::kUnavailable, testing::HasSubstr("the test broke it")));
  EXPECT_EQ(record.lost[0].sends_open, 0);
  EXPECT_EQ(record.receives_open, 0);
  for (Ticket ticket = first; ticket < first + 8; ++ticket) {
    EXPECT_THAT(record.sent[ticket], StatusIs(absl::StatusCode::kUnavailable));
  }
}

TEST_P(TransportConformanceTest, ADestroyedPeerIsLostAfterItsSendsCompleted) {
  TransportNode& a = AddNode();
  TransportNode& b = AddNode(Arrival::kPark);
  const PeerId peer = Connect(a, b);
  const Ticket first = a.SendMany(peer, 8, kLarge);
  ASSERT_TRUE(WaitAnnounced(b, 8));
  Destroy(b);
  ASSERT_TRUE(WaitLost(a, peer));
  TransportRecord record = a.record();
  EXPECT_THAT(record.lost[0].status, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(record.lost[0].sends_open, 0);
  for (Ticket ticket = first; ticket < first + 8; ++ticket) {
    // OK where the end of the peer dropped the message before it broke the connection.
    const absl::Status& status = record.sent[ticket];
    EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
  }
}

TEST_P(TransportConformanceTest, ReceivesFromADestroyedPeerComplete) {
  TransportNode& a = AddNode();
  TransportNode& b = AddNode(Arrival::kPark);
  const PeerId to_b = Connect(a, b);
  const PeerId to_a = Connect(b, a);
  a.SendMany(to_b, 8, 8 << 20);
  ASSERT_TRUE(WaitAnnounced(b, 8));
  b.ReceiveHeld(0, 4);
  Destroy(a);
  ASSERT_TRUE(WaitLost(b, to_a));
  EXPECT_EQ(b.record().receives_open, 0);
  b.ReceiveHeld(4, 4);
  ASSERT_TRUE(WaitReceived(b, 8));
  EXPECT_THAT(b.record().received[7].status, StatusIs(absl::StatusCode::kUnavailable));
}

TEST_P(TransportConformanceTest, SendingToALostPeerIsUnavailable) {
  TransportNode& a = AddNode();
  TransportNode& b = AddNode();
  const PeerId peer = Warm(a, b);
  Destroy(b);
  ASSERT_TRUE(WaitLost(a, peer));
  const Ticket ticket = a.Send(peer, {}, RandomBytes(random_, 100));
  ASSERT_TRUE(WaitSent(a, 2));
  EXPECT_THAT(a.record().sent[ticket], StatusIs(absl::StatusCode::kUnavailable));
}

TEST_P(TransportConformanceTest, AnAddressThatNoProcessHasAnyMoreIsALostPeer) {
  TransportNode& a = AddNode();
  TransportNode& b = AddNode();
  const std::string address = b.address();
  Destroy(b);
  ASSERT_OK_AND_ASSIGN(const PeerId peer, a.Connect(address));
  a.Send(peer, {}, RandomBytes(random_, kLarge));
  EXPECT_TRUE(WaitLost(a, peer));
  EXPECT_TRUE(WaitSent(a, 1));
}

TEST_P(TransportConformanceTest, OtherPeersDoNotNoticeALoss) {
  TransportNode& a = AddNode();
  TransportNode& b = AddNode(Arrival::kPark);
  TransportNode& c = AddNode();
  const PeerId to_b = Warm(a, b);
  const PeerId to_c = Warm(a, c);
  a.SendMany(to_b, 4, kLarge);
  Destroy(b);
  a.SendMany(to_c, 16, kLarge);
  EXPECT_TRUE(WaitLost(a, to_b));
  EXPECT_TRUE(WaitReceived(c, 17));
  EXPECT_EQ(a.record().lost.size(), 1);
}

}  // namespace crossmesh
