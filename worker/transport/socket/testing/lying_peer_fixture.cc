#include "worker/transport/socket/testing/lying_peer_fixture.h"

#include "common/base/check.h"
#include "common/testing/status_matchers.h"
#include "worker/transport/socket/socket_transport.h"

#include <utility>

#include <gmock/gmock.h>

namespace crossmesh {

using ::testing::HasSubstr;

void LyingPeerTest::StartNode(absl::Duration handshake_limit, TransportNode::Arrival arrival) {
  const MakeTransport make = [handshake_limit](TransportSink& sink) {
    return SocketTransport::Create(
        sink, {.interface = "lo", .shared_memory = true, .handshake_limit = handshake_limit});
  };
  auto node = TransportNode::Create(make, arrival);
  CHECK_OK(node);
  node_ = *std::move(node);
}

RawPeer LyingPeerTest::Connect(bool shared_memory, uint64_t number) {
  RawPeer peer = RawPeer::To(node_->address());
  SocketHandshake handshake = peer.Handshake();
  handshake.number = number;
  handshake.shared_memory = shared_memory ? 1 : 0;
  peer.Send(handshake);
  return peer;
}

void LyingPeerTest::Announce(RawPeer& peer, const Announcement& announced) {
  peer.Send(FrameHeader{.kind = FrameKind::kAnnounce,
                        .pieces = announced.pieces,
                        .id = announced.id,
                        .region = announced.region});
  peer.Send(MessageHeader{.sequence = announced.id, .payload_bytes = announced.bytes});
}

std::string LyingPeerTest::Flood(uint64_t messages) {
  std::string flood;
  for (uint64_t i = 0; i < messages; ++i) {
    const FrameHeader frame = {.kind = FrameKind::kAnnounce, .id = i};
    const MessageHeader header = {.payload_bytes = kLarge};
    flood.append(reinterpret_cast<const char*>(&frame), sizeof(frame));
    flood.append(reinterpret_cast<const char*>(&header), sizeof(header));
  }
  return flood;
}

bool LyingPeerTest::WaitAnnounced(size_t count) {
  return node_->WaitUntil([&](const auto& record) { return record.announced.size() >= count; });
}

bool LyingPeerTest::WaitReceived(size_t count) {
  return node_->WaitUntil([&](const auto& record) { return record.received.size() >= count; });
}

void LyingPeerTest::ExpectClosed(RawPeer& peer, const std::string& why) {
  peer.WaitClosed();
  MutexLock lock(mutex_);
  EXPECT_THAT(problems_, HasSubstr(why));
  EXPECT_THAT(problems_, HasSubstr("\"other_side\":\"127.0.0.1:"));
}

void LyingPeerTest::ExpectAnswersRefused(const std::vector<FrameHeader>& answers,
                                         const std::string& why) {
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

void LyingPeerTest::TearDown() {
  EXPECT_THAT(node_->record().violations, testing::IsEmpty());
  EXPECT_TRUE(node_->FailedDestinationsUntouched());
}

void LyingPeerTest::OnLog(const LogRecord& record) {
  MutexLock lock(mutex_);
  problems_ += record.ToJson();
}

}  // namespace crossmesh
