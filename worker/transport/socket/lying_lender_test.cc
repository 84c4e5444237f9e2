// What a SocketTransport does with memory of another process that is not what the other side says.

#include "common/testing/status_matchers.h"
#include "worker/transport/socket/testing/lying_peer_fixture.h"
#include "worker/transport/testing/sealed_memory.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace crossmesh {
namespace {

constexpr uint64_t kRegion = 7;

class LyingLenderTest : public LyingPeerTest {
 protected:
  RegionFile File() const {
    return {.bytes = memory_->bytes().size(),
            .inode = memory_->inode(),
            .fd = static_cast<uint32_t>(memory_->fd())};
  }

  // A peer that lends `file` and announces a payload there.
  RawPeer Announcing(const RegionFile& file, const std::vector<RemotePiece>& pieces) {
    RawPeer peer = Connect(/*shared_memory=*/true, ++number_);
    peer.Lend(kRegion, file);
    Announce(peer, {.id = 1,
                    .bytes = kLarge,
                    .pieces = static_cast<uint32_t>(pieces.size()),
                    .region = kRegion});
    for (const RemotePiece& piece : pieces) peer.Send(piece);
    return peer;
  }

  static void Forget(RawPeer& peer, uint64_t region) {
    peer.Send(FrameHeader{.kind = FrameKind::kForget, .region = region});
  }

  const std::unique_ptr<SealedMemory> memory_ = SealedMemory::Create(2 * kLarge);

 private:
  uint64_t number_ = 0;
};

TEST_F(LyingLenderTest, AnHonestOneIsReadFrom) {
  std::ranges::fill(memory_->bytes(), std::byte{'x'});
  memory_->bytes()[50000] = std::byte{'y'};
  RawPeer peer = Announcing(File(), {{.offset = 50000, .bytes = 1}, {.bytes = kLarge - 1}});
  ASSERT_TRUE(WaitAnnounced(1));
  node_->ReceiveHeld(0);
  const auto done = peer.Read<FrameHeader>();
  EXPECT_EQ(done.kind, FrameKind::kDone);
  EXPECT_EQ(done.id, 1);
  ASSERT_TRUE(WaitReceived(1));
  const std::vector<std::byte> payload = node_->record().received[0].payload;
  EXPECT_EQ(payload[0], std::byte{'y'});
  EXPECT_EQ(payload[50000], std::byte{'x'});
  EXPECT_EQ(payload[50001], std::byte{'y'});
}

TEST_F(LyingLenderTest, WhatTheSystemDoesNotOpenIsAskedFor) {
  RegionFile file = File();
  file.fd = 1 << 20;
  RawPeer peer = Announcing(file, {{.bytes = kLarge}});
  ASSERT_TRUE(WaitAnnounced(1));
  node_->ReceiveHeld(0);
  EXPECT_EQ(peer.Read<FrameHeader>().kind, FrameKind::kTake);
  peer.Send(FrameHeader{.kind = FrameKind::kPayload, .id = 1});
  peer.SendBytes(std::string(kLarge, 'x'));
  ASSERT_TRUE(WaitReceived(1));
  EXPECT_OK(node_->record().received[0].status);
}

TEST_F(LyingLenderTest, NothingIsMappedFromAProcessThatIsNotTheOtherSide) {
  RawPeer peer = RawPeer::To(node_->address());
  SocketHandshake handshake = peer.Handshake();
  handshake.shared_memory = 1;
  handshake.from[0] = 'R';
  peer.Send(handshake);
  peer.Lend(kRegion, File());
  Announce(peer, {.id = 1, .bytes = kLarge, .pieces = 1, .region = kRegion});
  peer.Send(RemotePiece{.bytes = kLarge});
  ASSERT_TRUE(WaitAnnounced(1));
  EXPECT_EQ(SealedMemory::CountMappings(), 1);
  node_->ReceiveHeld(0);
  EXPECT_EQ(peer.Read<FrameHeader>().kind, FrameKind::kTake);
}

TEST_F(LyingLenderTest, PiecesThatDoNotAddUpAreRefused) {
  const std::vector<std::pair<std::vector<RemotePiece>, std::string>> lies = {
      {{{}, {.bytes = kLarge}}, "expected a piece of 1 to 100000 bytes, found 0"},
      {{{.bytes = kLarge}, {.bytes = 1}}, "expected a piece of 1 to 0 bytes, found 1"},
      {{{.bytes = 1}, {.bytes = ~uint64_t{0}}}, "expected a piece of 1 to 99999 bytes"},
      {{{.bytes = 1}, {.bytes = 2}}, "its pieces lack 99997"}};
  for (const auto& [pieces, why] : lies) {
    RawPeer peer = Announcing(File(), pieces);
    ExpectClosed(peer, why);
  }
}

TEST_F(LyingLenderTest, PiecesBeyondTheEndOfARegionAreRefused) {
  for (const uint64_t offset : {kLarge + 1, ~uint64_t{0}}) {
    RawPeer peer = Announcing(File(), {{.offset = offset, .bytes = kLarge}});
    ExpectClosed(peer, "expected a piece in region 7 of 200000 bytes, found 100000 bytes at " +
                           std::to_string(offset));
  }
}

TEST_F(LyingLenderTest, PiecesInNoRegionAreRefused) {
  RawPeer peer = Connect(/*shared_memory=*/true);
  Announce(peer, {.id = 1, .bytes = kLarge, .pieces = 1, .region = 8});
  peer.Send(RemotePiece{.bytes = kLarge});
  ExpectClosed(peer, "region 8: expected one that is lent, found none");
}

TEST_F(LyingLenderTest, AnotherFileThanItSaysIsRefused) {
  RegionFile file = File();
  ++file.inode;
  RawPeer other = Announcing(file, {{.bytes = kLarge}});
  ExpectClosed(other, "region 7: expected inode " + std::to_string(file.inode));
  file = File();
  ++file.bytes;
  RawPeer larger = Announcing(file, {{.bytes = kLarge}});
  ExpectClosed(larger, "region 7: expected 200001 bytes, found 200000");
}

TEST_F(LyingLenderTest, MemoryThatMayShrinkIsRefused) {
  const UniqueFd fd(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(fd.get(), kLarge), 0);
  struct stat found;
  ASSERT_EQ(fstat(fd.get(), &found), 0);
  RawPeer peer =
      Announcing({.bytes = kLarge, .inode = found.st_ino, .fd = static_cast<uint32_t>(fd.get())},
                 {{.bytes = kLarge}});
  ExpectClosed(peer, "expected memory that is sealed against shrinking, found seals 0");
}

TEST_F(LyingLenderTest, AFileThatIsNoMemoryIsRefused) {
  const UniqueFd fd(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  struct stat found;
  ASSERT_EQ(fstat(fd.get(), &found), 0);
  RawPeer peer = Announcing({.bytes = static_cast<uint64_t>(found.st_size),
                             .inode = found.st_ino,
                             .fd = static_cast<uint32_t>(fd.get())},
                            {{.bytes = kLarge}});
  ExpectClosed(peer, "sealed against shrinking, found seals -1");
}

TEST_F(LyingLenderTest, ARegionIsLentOnce) {
  RawPeer peer = Connect(/*shared_memory=*/true);
  peer.Lend(kRegion, File());
  peer.Lend(kRegion, File());
  ExpectClosed(peer, "region 7: expected a new one, found one that is lent");
}

TEST_F(LyingLenderTest, AnEmptyRegionIsRefused) {
  RawPeer peer = Connect(/*shared_memory=*/true);
  peer.Lend(kRegion, {});
  ExpectClosed(peer, "region 7: expected at least 1 byte, found 0");
}

TEST_F(LyingLenderTest, TooManyRegionsAreRefused) {
  RawPeer peer = Connect(/*shared_memory=*/true);
  for (uint64_t region = 1; region <= kRegionsMax + 1; ++region) peer.Lend(region, File());
  ExpectClosed(peer, "region 4097: expected at most 4096 regions, found one more");
}

TEST_F(LyingLenderTest, ARegionThatIsNotLentCannotBeForgotten) {
  RawPeer peer = Connect(/*shared_memory=*/true);
  Forget(peer, 3);
  ExpectClosed(peer, "region 3: expected one that is lent, found none");
}

TEST_F(LyingLenderTest, ARegionWithPayloadsCannotBeForgotten) {
  RawPeer peer = Announcing(File(), {{.bytes = kLarge}});
  ASSERT_TRUE(WaitAnnounced(1));
  Forget(peer, kRegion);
  ExpectClosed(peer, "region 7: expected no payloads in it when it is forgotten, found 1");
  node_->ReceiveHeld(0);
  ASSERT_TRUE(WaitReceived(1));
  EXPECT_THAT(node_->record().received[0].status, StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(LyingLenderTest, NorOneWithAPayloadThatIsBeingCopied) {
  RawPeer peer = Announcing(File(), {{.bytes = kLarge}});
  ASSERT_TRUE(WaitAnnounced(1));
  // The loop reads before it copies.
  node_->ReceiveHeldThen(0, [&] {
    Forget(peer, kRegion);
    peer.WaitDelivered();
  });
  ASSERT_TRUE(WaitReceived(1));
  EXPECT_THAT(node_->record().received[0].status, StatusIs(absl::StatusCode::kUnavailable));
  ExpectClosed(peer, "region 7: expected no payloads in it when it is forgotten, found 1");
}

TEST_F(LyingLenderTest, AForgottenRegionIsUnmappedAndMayBeLentAgain) {
  RawPeer peer = Announcing(File(), {{.bytes = kLarge}});
  ASSERT_TRUE(WaitAnnounced(1));
  EXPECT_EQ(SealedMemory::CountMappings(), 2);
  node_->DropHeld(0);
  EXPECT_EQ(peer.Read<FrameHeader>().kind, FrameKind::kDone);
  Forget(peer, kRegion);
  peer.Lend(kRegion, File());
  Announce(peer, {.id = 2, .bytes = 0});
  ASSERT_TRUE(WaitAnnounced(2));
  EXPECT_EQ(SealedMemory::CountMappings(), 1);
}

}  // namespace
}  // namespace crossmesh
