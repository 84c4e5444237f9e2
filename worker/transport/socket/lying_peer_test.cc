// What a SocketTransport does when the other side does not keep to the protocol, or goes to its
// limits.

#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/testing/status_matchers.h"
#include "worker/transport/socket/raw_peer.h"
#include "worker/transport/socket/socket_transport.h"
#include "worker/transport/testing/transport_node.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/string_view.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kLarge = 100000;

class LyingPeerTest : public testing::Test {
 protected:
  void StartNode(absl::Duration handshake_limit) {
    const MakeTransport make = [handshake_limit](TransportSink& sink) {
      return SocketTransport::Create(
          sink, {.interfaces = {"lo"}, .shared_memory = true, .handshake_limit = handshake_limit});
    };
    ASSERT_OK_AND_ASSIGN(node_, TransportNode::Create(make, TransportNode::Arrival::kPark));
  }
  void SetUp() override { StartNode(absl::Minutes(1)); }

  RawPeer Connect(bool shared_memory = false, uint64_t number = 1) {
    RawPeer peer = RawPeer::To(node_->address());
    SocketHandshake handshake = peer.Handshake();
    handshake.number = number;
    handshake.shared_memory = shared_memory ? 1 : 0;
    peer.Send(handshake);
    return peer;
  }

  static void Announce(RawPeer& peer, uint64_t id, uint64_t bytes, uint32_t pieces = 0) {
    peer.Send(FrameHeader{.kind = FrameKind::kAnnounce, .pieces = pieces, .id = id});
    peer.Send(MessageHeader{.sequence = id, .payload_bytes = bytes});
  }

  bool WaitAnnounced(size_t count) {
    return node_->WaitUntil([&](const auto& record) { return record.announced.size() >= count; });
  }
  bool WaitReceived(size_t count) {
    return node_->WaitUntil([&](const auto& record) { return record.received.size() >= count; });
  }

  // The transport closes the connection, and says why.
  void ExpectClosed(RawPeer& peer, const std::string& why) {
    peer.WaitClosed();
    MutexLock lock(mutex_);
    EXPECT_THAT(problems_, HasSubstr(why));
    EXPECT_THAT(problems_, HasSubstr("\"other_side\":\"127.0.0.1:"));
  }

  // A node connects to a peer, announces two messages, and is told these answers.
  void ExpectAnswersRefused(const std::vector<FrameHeader>& answers, const std::string& why) {
    RawPeer peer = RawPeer::Listening();
    ASSERT_OK_AND_ASSIGN(const PeerId id, node_->Connect(peer.address()));
    peer.Accept();
    node_->SendMany(id, 2, kLarge);
    for (const FrameHeader& answer : answers) peer.Send(answer);
    EXPECT_TRUE(node_->WaitUntil([](const auto& record) { return record.lost.size() == 1; }));
    EXPECT_THAT(node_->record().lost[0].status,
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr(why)));
    EXPECT_EQ(node_->record().sent.size(), 2);
    ExpectClosed(peer, why);
  }

  void TearDown() override {
    EXPECT_THAT(node_->record().violations, testing::IsEmpty());
    EXPECT_TRUE(node_->FailedDestinationsUntouched());
  }

  std::unique_ptr<TransportNode> node_;

 private:
  void OnLog(const LogRecord& record) {
    MutexLock lock(mutex_);
    problems_ += record.ToJson();
  }

  Mutex mutex_;
  std::string problems_ ABSL_GUARDED_BY(mutex_);
  const ScopedLogSink log_{[this](const LogRecord& record) { OnLog(record); }};
};

TEST_F(LyingPeerTest, AnHonestOneIsHeard) {
  RawPeer peer = Connect();
  Announce(peer, 7, 3);
  peer.SendBytes("abc");
  Announce(peer, 8, kLarge);
  ASSERT_TRUE(WaitAnnounced(2));
  node_->ReceiveParked(0, 2);
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
  Announce(first, 1, 0);
  ASSERT_TRUE(WaitAnnounced(1));
  RawPeer second = Connect();
  ExpectClosed(second, "connection 1 was made before");
  Announce(first, 2, 0);
  EXPECT_TRUE(WaitAnnounced(2));
}

TEST_F(LyingPeerTest, AnUnknownFrameIsRefused) {
  RawPeer peer = Connect();
  peer.Send(FrameHeader{.kind = FrameKind{9}});
  ExpectClosed(peer, "expected kind 1 or 2, found 9");
}

TEST_F(LyingPeerTest, PiecesOverTcpAreRefused) {
  RawPeer peer = Connect();
  Announce(peer, 1, kLarge, 1);
  ExpectClosed(peer, "expected 0 to 0 pieces, found 1");
}

TEST_F(LyingPeerTest, APayloadThatWasNotAskedForIsRefused) {
  RawPeer peer = Connect();
  Announce(peer, 1, kLarge);
  peer.Send(FrameHeader{.kind = FrameKind::kPayload, .id = 1});
  ExpectClosed(peer, "payload of message 1: expected none");
}

TEST_F(LyingPeerTest, APayloadOfAnotherMessageIsRefused) {
  RawPeer peer = Connect();
  Announce(peer, 1, kLarge);
  ASSERT_TRUE(WaitAnnounced(1));
  node_->ReceiveParked(0);
  peer.Send(FrameHeader{.kind = FrameKind::kPayload, .id = 2});
  ExpectClosed(peer, "expected that of message 1, found 2");
  ASSERT_TRUE(WaitReceived(1));
  EXPECT_THAT(node_->record().received[0].status, StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(LyingPeerTest, PiecesThatDoNotAddUpAreRefused) {
  const std::vector<std::pair<std::vector<uint64_t>, std::string>> lies = {
      {{0, kLarge}, "expected a piece of 1 to 100000 bytes, found 0"},
      {{kLarge, 1}, "expected a piece of 1 to 0 bytes, found 1"},
      {{1, ~uint64_t{0}}, "expected a piece of 1 to 99999 bytes"},
      {{1, 2}, "its pieces lack 99997"}};
  uint64_t number = 0;
  for (const auto& [pieces, why] : lies) {
    RawPeer peer = Connect(/*shared_memory=*/true, ++number);
    Announce(peer, 1, kLarge, static_cast<uint32_t>(pieces.size()));
    for (const uint64_t bytes : pieces) peer.Send(RemotePiece{.bytes = bytes});
    ExpectClosed(peer, why);
  }
}

TEST_F(LyingPeerTest, MemoryThatIsNotThereEndsTheConnection) {
  RawPeer peer = Connect(/*shared_memory=*/true);
  Announce(peer, 1, kLarge, 1);
  peer.Send(RemotePiece{.address = 1, .bytes = kLarge});
  ASSERT_TRUE(WaitAnnounced(1));
  node_->ReceiveParked(0);
  ASSERT_TRUE(WaitReceived(1));
  EXPECT_THAT(node_->record().received[0].status,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("reading the memory")));
  peer.WaitClosed();
}

TEST_F(LyingPeerTest, AFloodOfAnnouncementsIsStopped) {
  RawPeer peer = Connect();
  std::string flood;
  for (uint64_t i = 0; i < 1000; ++i) {
    const FrameHeader frame = {.kind = FrameKind::kAnnounce, .id = i};
    const MessageHeader header = {.payload_bytes = kLarge};
    flood.append(reinterpret_cast<const char*>(&frame), sizeof(frame));
    flood.append(reinterpret_cast<const char*>(&header), sizeof(header));
  }
  for (int i = 0; i < 66; ++i) peer.SendBytes(flood);
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

}  // namespace
}  // namespace crossmesh
