// What a SocketTransport does when the other side does not keep to the protocol, or goes to its
// limits.

#include "common/testing/status_matchers.h"
#include "worker/transport/socket/testing/lying_peer_fixture.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <absl/strings/string_view.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST_F(LyingPeerTest, AnHonestOneIsHeard) {
  RawPeer peer = Connect();
  Announce(peer, {.id = 7, .bytes = 3});
  peer.SendBytes("abc");
  Announce(peer, {.id = 8, .bytes = kLarge});
  ASSERT_TRUE(WaitAnnounced(2));
  node_->ReceiveHeld(0, 2);
  const auto take = peer.Read<FrameHeader>();
  EXPECT_EQ(take.kind, FrameKind::kTake);
  EXPECT_EQ(take.id, 8);
  peer.Send(FrameHeader{.kind = FrameKind::kPayload, .id = 8});
  const std::string payload(kLarge, 'x');
  peer.SendBytes(absl::string_view(payload).substr(0, 10000));
  peer.SendBytes(absl::string_view(payload).substr(10000));
  ASSERT_TRUE(WaitReceived(2));
  EXPECT_EQ(node_->record().received[0].payload,
            (std::vector<std::byte>{std::byte{'a'}, std::byte{'b'}, std::byte{'c'}}));
  EXPECT_EQ(node_->record().received[1].payload, std::vector<std::byte>(kLarge, std::byte{'x'}));
}

TEST_F(LyingPeerTest, BytesMayComeOneByOne) {
  RawPeer peer = RawPeer::To(node_->address());
  const SocketHandshake handshake = peer.Handshake();
  const absl::string_view bytes(reinterpret_cast<const char*>(&handshake), sizeof(handshake));
  for (size_t i = 0; i < bytes.size(); ++i) peer.SendBytes(bytes.substr(i, 1));
  const FrameHeader frame = {.kind = FrameKind::kAnnounce};
  const MessageHeader header = {.sequence = 5};
  const std::string message = std::string(reinterpret_cast<const char*>(&frame), sizeof(frame)) +
                              std::string(reinterpret_cast<const char*>(&header), sizeof(header));
  for (const char byte : message) peer.SendBytes({&byte, 1});
  ASSERT_TRUE(WaitAnnounced(1));
  EXPECT_EQ(node_->record().announced[0].sequence, 5);
}

TEST_F(LyingPeerTest, AForeignProtocolIsRefused) {
  RawPeer peer = RawPeer::To(node_->address());
  peer.SendBytes("GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: somebody else's\r\n\r\n");
  ExpectClosed(peer, "expected magic");
}

TEST_F(LyingPeerTest, AHandshakeForAnotherTransportIsRefused) {
  RawPeer peer = RawPeer::To(node_->address());
  SocketHandshake handshake = peer.Handshake();
  handshake.to[0] = static_cast<char>(handshake.to[0] ^ 1);
  peer.Send(handshake);
  ExpectClosed(peer, "for another transport");
}

TEST_F(LyingPeerTest, WithoutHandshakeAConnectionIsClosed) {
  StartNode(absl::Milliseconds(20));
  RawPeer silent = RawPeer::To(node_->address());
  RawPeer slow = RawPeer::To(node_->address());
  slow.SendBytes("C");
  ExpectClosed(silent, "expected a handshake within 20ms");
  slow.WaitClosed();
}

TEST_F(LyingPeerTest, ANumberIsUsedOnce) {
  RawPeer first = Connect();
  Announce(first, {.id = 1, .bytes = 0});
  ASSERT_TRUE(WaitAnnounced(1));
  RawPeer second = Connect();
  ExpectClosed(second, "connection 1 was made before");
  Announce(first, {.id = 2, .bytes = 0});
  EXPECT_TRUE(WaitAnnounced(2));
}

TEST_F(LyingPeerTest, AnUnknownFrameIsRefused) {
  RawPeer peer = Connect();
  peer.Send(FrameHeader{.kind = FrameKind{9}});
  ExpectClosed(peer, "expected kind 1, 2, 5 or 6, found 9");
}

TEST_F(LyingPeerTest, PiecesOverTcpAreRefused) {
  RawPeer peer = Connect();
  Announce(peer, {.id = 1, .bytes = kLarge, .pieces = 1});
  ExpectClosed(peer, "expected at most 0 pieces, found 1");
}

TEST_F(LyingPeerTest, RegionsOverTcpAreRefused) {
  RawPeer peer = Connect();
  peer.Lend(7, {.bytes = kLarge});
  ExpectClosed(peer, "region 7: expected none without shared memory");
}

TEST_F(LyingPeerTest, APayloadThatWasNotAskedForIsRefused) {
  RawPeer peer = Connect();
  Announce(peer, {.id = 1, .bytes = kLarge});
  peer.Send(FrameHeader{.kind = FrameKind::kPayload, .id = 1});
  ExpectClosed(peer, "payload of message 1: expected none");
}

TEST_F(LyingPeerTest, APayloadOfAnotherMessageIsRefused) {
  RawPeer peer = Connect();
  Announce(peer, {.id = 1, .bytes = kLarge});
  ASSERT_TRUE(WaitAnnounced(1));
  node_->ReceiveHeld(0);
  peer.Send(FrameHeader{.kind = FrameKind::kPayload, .id = 2});
  ExpectClosed(peer, "expected that of message 1, found 2");
  ASSERT_TRUE(WaitReceived(1));
  EXPECT_THAT(node_->record().received[0].status, StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(LyingPeerTest, AFloodOfAnnouncementsIsStopped) {
  RawPeer peer = Connect();
  const std::string flood = Flood(1000);
  for (int i = 0; i < 66; ++i) peer.SendBytes(flood);
  ExpectClosed(peer, "expected at most 65536 pages of them unanswered, found 65537");
}

// With each message that is dropped one place more is free, and one answer more waits to be read.
TEST_F(LyingPeerTest, AFloodWhoseAnswersAreNotReadIsStopped) {
  StartNode(absl::Minutes(1), TransportNode::Arrival::kDrop);
  RawPeer peer = Connect();
  const std::string flood = Flood(1000);
  // More than the bound and what the system keeps of answers.
  for (int i = 0; i < 500 && !HasFailure(); ++i) peer.SendBytes(flood);
  ExpectClosed(peer, "expected at most 65536 pages of them unanswered, found 65537");
}

TEST_F(LyingPeerTest, AnAnswerOfAnotherKindIsRefused) {
  ExpectAnswersRefused({{.kind = FrameKind::kPayload}}, "expected kind 3 or 4, found 2");
}

TEST_F(LyingPeerTest, AnAnswerToNoMessageIsRefused) {
  ExpectAnswersRefused({{.kind = FrameKind::kTake, .id = 2}},
                       "expected the id of a message without answer, found 2");
}

TEST_F(LyingPeerTest, AMessageIsAnsweredOnce) {
  ExpectAnswersRefused({{.kind = FrameKind::kTake, .id = 0}, {.kind = FrameKind::kDone, .id = 0}},
                       "expected the id of a message without answer, found 0");
}

TEST_F(LyingPeerTest, ALateAnswerIsNotTakenForOneToTheNextMessage) {
  RawPeer peer = RawPeer::Listening();
  ASSERT_OK_AND_ASSIGN(const PeerId id, node_->Connect(peer.address()));
  peer.Accept();
  peer.Read<SocketHandshake>();
  const FrameHeader done = {.kind = FrameKind::kDone};
  node_->SendMany(id, 1, kLarge);
  EXPECT_EQ(peer.Read<FrameHeader>().id, done.id);
  peer.Read<MessageHeader>();
  peer.Send(done);
  ASSERT_TRUE(node_->WaitUntil([](const auto& record) { return record.sent.size() == 1; }));
  // It has the place of the first.
  const Ticket next = node_->SendMany(id, 1, kLarge);
  EXPECT_NE(peer.Read<FrameHeader>().id, done.id);
  peer.Send(done);
  ASSERT_TRUE(node_->WaitUntil([](const auto& record) { return record.sent.size() == 2; }));
  EXPECT_THAT(node_->record().sent[next], StatusIs(absl::StatusCode::kUnavailable));
  ExpectClosed(peer, "expected the id of a message without answer, found 0");
}

}  // namespace
}  // namespace crossmesh
