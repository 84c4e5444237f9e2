#include "worker/transport/socket/outgoing_stream.h"

#include "common/testing/status_matchers.h"
#include "worker/transport/socket/testing/outgoing_stream_fixture.h"
#include "worker/transport/testing/sealed_memory.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(OutgoingStreamTest, PayloadsOfUpTo4096BytesGoWithTheirAnnouncement) {
  Send(1, {Piece(std::string(4095, 'x')), Piece("y")});
  EXPECT_THAT(Events(), IsEmpty());
  EXPECT_EQ(Written(), absl::StrCat(Announcement(0, 1, 4096), std::string(4095, 'x'), "y"));
  EXPECT_THAT(Events(), ElementsAre("sent 1 OK"));
  SendBytes(2, std::string(4097, 'x'));
  EXPECT_EQ(Written(), Announcement(0, 2, 4097));
  EXPECT_THAT(Events(), IsEmpty());
  Send(3, {});
  EXPECT_EQ(Written(), Announcement(0, 3, 0));
  EXPECT_THAT(Events(), ElementsAre("sent 3 OK"));
}

// So that a late answer is not taken for one to the next message there.
TEST_F(OutgoingStreamTest, AnIdIsAPlaceThatIsUsedAgainAndHowOftenItWasUsed) {
  for (const Ticket ticket : {1, 2}) SendBytes(ticket, std::string(kLarge, 'x'));
  EXPECT_EQ(Written(), Announcement(0, 1, kLarge) + Announcement(1, 2, kLarge));
  Answer(FrameKind::kDone, 0);
  EXPECT_THAT(Events(), ElementsAre("sent 1 OK"));
  for (const Ticket ticket : {3, 4}) SendBytes(ticket, std::string(kLarge, 'x'));
  EXPECT_EQ(Written(), Announcement(uint64_t{1} << 32, 3, kLarge) + Announcement(2, 4, kLarge));
  Answer(FrameKind::kDone, uint64_t{1} << 32);
  Answer(FrameKind::kDone, 2);
  Answer(FrameKind::kDone, 1);
  EXPECT_THAT(Events(), ElementsAre("sent 3 OK", "sent 4 OK", "sent 2 OK"));
  SendBytes(5, std::string(kLarge, 'x'));
  EXPECT_EQ(Written(), Announcement((uint64_t{1} << 32) + 1, 5, kLarge));
}

TEST_F(OutgoingStreamTest, AnswersToWhatWasNotAnnouncedAreRefused) {
  struct Lie {
    FrameHeader answer;
    std::string why;
    bool taken = false;  // message 0, before
  };
  const std::string no_message = "answer: expected the id of a message without answer, found ";
  const std::vector<Lie> lies = {
      {{.kind = FrameKind::kTake, .id = 1}, no_message + "1"},
      {{.kind = FrameKind::kDone, .id = uint64_t{1} << 32}, no_message + "4294967296"},
      {{.kind = FrameKind::kTake, .id = 0}, no_message + "0", true},
      {{.kind = FrameKind::kDone, .id = 0}, no_message + "0", true},
      {{.kind = FrameKind::kAnnounce}, "answer: expected kind 3 or 4, found 1"},
      {{.kind = FrameKind::kRegion}, "answer: expected kind 3 or 4, found 5"}};
  for (const Lie& lie : lies) {
    Renew(/*shared_memory=*/false);
    SendBytes(1, std::string(kLarge, 'x'));
    if (lie.taken) Answer(FrameKind::kTake, 0);
    peer_.Send(BytesOfObject(lie.answer));
    EXPECT_THAT(stream_->Read(kMuch), StatusIs(absl::StatusCode::kInvalidArgument, lie.why));
  }
}

TEST_F(OutgoingStreamTest, BeforeAMessageThereIsNoAnswer) {
  peer_.Send(BytesOfObject(FrameHeader{.kind = FrameKind::kDone}));
  EXPECT_THAT(stream_->Read(kMuch),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found 0")));
}

TEST_F(OutgoingStreamTest, AnswersMayComeByteByByteAndManyAtOnce) {
  constexpr uint64_t kCount = 400;
  std::string answers;
  for (uint64_t id = 0; id < kCount; ++id) {
    SendBytes(id, std::string(kLarge, 'x'));
    answers += BytesOfObject(FrameHeader{.kind = FrameKind::kDone, .id = id});
  }
  // The first three byte by byte, the others with a part of one over.
  const size_t single = 3 * sizeof(FrameHeader);
  for (size_t i = 0; i < single; ++i) {
    peer_.Send(answers.substr(i, 1));
    ASSERT_OK(stream_->Read(1)) << i;
    ASSERT_EQ(told_.TellTo(sink_), (i + 1) % sizeof(FrameHeader) == 0 ? 1 : 0) << i;
  }
  peer_.Send(answers.substr(single));
  const size_t sent = answers.size() - single;
  ASSERT_OK(stream_->Read(4096));
  EXPECT_EQ(StreamPeer::Unread(stream_->fd()), sent - 4096);
  EXPECT_EQ(told_.TellTo(sink_), 4096 / sizeof(FrameHeader));
  ASSERT_OK(stream_->Read(kMuch));
  EXPECT_EQ(StreamPeer::Unread(stream_->fd()), 0);
  told_.TellTo(sink_);
  ASSERT_EQ(sink_.events.size(), kCount);
  EXPECT_EQ(sink_.events[kCount - 1], "sent 399 OK");
}

TEST_F(OutgoingStreamTest, AsManyBytesOfAPayloadAreWrittenAsMayBe) {
  const std::string payload(kLarge, 'x');
  SendBytes(1, payload);
  EXPECT_EQ(Written(), Announcement(0, 1, kLarge));
  EXPECT_THAT(work_list_, IsEmpty());
  Answer(FrameKind::kTake, 0);
  // The header does not count, since it goes with the first bytes.
  EXPECT_EQ(Written(1000), PayloadHeader(0) + payload.substr(0, 1000));
  EXPECT_EQ(Written(1000), payload.substr(0, 1000));
  EXPECT_EQ(Written(1), payload.substr(0, 1));
  EXPECT_EQ(Written(kLarge - 2002), payload.substr(0, kLarge - 2002));
  EXPECT_THAT(Events(), IsEmpty());
  EXPECT_EQ(Written(), payload.substr(0, 1));
  EXPECT_THAT(Events(), ElementsAre("sent 1 OK"));
  EXPECT_THAT(work_list_, IsEmpty());
}

TEST_F(OutgoingStreamTest, AnnouncementsWaitForThePayloadUnderWayAlone) {
  const std::string first(kLarge, 'x');
  const std::string second(kLarge, 'y');
  SendBytes(1, first);
  Send(2, {Piece(second.substr(0, 7)), Piece(second.substr(7))});
  Written();
  Answer(FrameKind::kTake, 1);
  Answer(FrameKind::kTake, 0);
  EXPECT_EQ(Written(10), PayloadHeader(1) + second.substr(0, 10));
  SendBytes(3, "abc");
  EXPECT_EQ(Written(),
            absl::StrCat(second.substr(10), Announcement(0, 3, 3), "abc", PayloadHeader(0), first));
  EXPECT_THAT(Events(), ElementsAre("sent 2 OK", "sent 3 OK", "sent 1 OK"));
}

TEST_F(OutgoingStreamTest, APayloadMayComeFrom1024Pieces) {
  std::vector<iovec> pieces;
  for (size_t i = 0; i < kPiecesMax; ++i) pieces.push_back(Piece(std::string(5, 'x')));
  Send(1, pieces);
  Written();
  Answer(FrameKind::kTake, 0);
  EXPECT_EQ(Written(), PayloadHeader(0) + std::string(5 * kPiecesMax, 'x'));
  EXPECT_THAT(Events(), ElementsAre("sent 1 OK"));
}

TEST_F(OutgoingStreamTest, AMessageIsSentWithItsLastByte) {
  const size_t taken = StreamPeer::LimitBytesOnTheWay(stream_->fd());
  ASSERT_GT(taken, 2000);
  // One byte more than the socket takes.
  SendBytes(1, std::string(1000, 'x'));
  size_t left = taken + 1 - kAnnounceBytes - 1000;
  Ticket last = 1;
  while (left > 0) {
    const size_t bytes = left > 4000 ? 3000 : left;
    SendBytes(++last, std::string(bytes - kAnnounceBytes, 'y'));
    left -= bytes;
  }
  std::string written = Written();
  EXPECT_EQ(written.size(), taken);
  EXPECT_TRUE(stream_->blocked());
  EXPECT_THAT(work_list_, IsEmpty());
  EXPECT_EQ(Events().size(), last - 1);
  stream_->Unblock();
  EXPECT_EQ(Written(), "y");
  EXPECT_FALSE(stream_->blocked());
  EXPECT_THAT(Events(), ElementsAre(absl::StrCat("sent ", last, " OK")));
}

TEST_F(OutgoingStreamTest, ALargePayloadWaitsForTheSocket) {
  StreamPeer::LimitBytesOnTheWay(stream_->fd());
  std::string payload(100'000, '\0');
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<char>(i % 251);
  SendBytes(1, payload);
  Written();
  Answer(FrameKind::kTake, 0);
  std::string written = Written();
  for (int i = 0; stream_->blocked() && i < 10'000; ++i) {
    EXPECT_THAT(Events(), IsEmpty());
    stream_->Unblock();
    written += Written();
  }
  EXPECT_EQ(written, PayloadHeader(0) + payload);
  EXPECT_THAT(Events(), ElementsAre("sent 1 OK"));
}

class LendingStreamTest : public OutgoingStreamTest {
 protected:
  LendingStreamTest() { Renew(/*shared_memory=*/true); }

  std::string Region(uint64_t id) const {
    return absl::StrCat(BytesOfObject(FrameHeader{.kind = FrameKind::kRegion, .region = id}),
                        BytesOfObject(RegionFile{.bytes = memory_->bytes().size(),
                                                 .inode = memory_->inode(),
                                                 .fd = static_cast<uint32_t>(memory_->fd())}));
  }
  static std::string InRegion(uint64_t id, uint64_t region, uint64_t sequence,
                              const std::vector<RemotePiece>& pieces) {
    const FrameHeader frame = {.kind = FrameKind::kAnnounce,
                               .pieces = static_cast<uint32_t>(pieces.size()),
                               .id = id,
                               .region = region};
    uint64_t bytes = 0;
    std::string list;
    for (const RemotePiece& piece : pieces) {
      bytes += piece.bytes;
      list += BytesOfObject(piece);
    }
    return Announcement(frame, sequence, bytes) + list;
  }
  iovec Lent(size_t offset, size_t bytes) const {
    return PieceOf(memory_->bytes().subspan(offset, bytes));
  }

  const std::unique_ptr<SealedMemory> memory_ = SealedMemory::Create(3 * kLarge);
};

TEST_F(LendingStreamTest, ARegionIsToldWithTheFirstPayloadInIt) {
  regions_.Add(memory_->lent());
  Send(1, {Lent(kLarge, 1), Lent(0, kLarge)});
  EXPECT_EQ(Written(), absl::StrCat(Region(1), InRegion(0, 1, 1,
                                                        {{.offset = kLarge, .bytes = 1},
                                                         {.offset = 0, .bytes = kLarge}})));
  Send(2, {Lent(2 * kLarge, kLarge)});
  EXPECT_EQ(Written(), InRegion(1, 1, 2, {{.offset = 2 * kLarge, .bytes = kLarge}}));
  // Small ones, and what lies elsewhere, go by the socket.
  Send(3, {Lent(0, 3)});
  EXPECT_EQ(Written(), Announcement(0, 3, 3) + std::string(3, '\0'));
  SendBytes(4, std::string(kLarge, 'x'));
  EXPECT_EQ(Written(), Announcement(2, 4, kLarge));
}

TEST_F(LendingStreamTest, WithoutSharedMemoryNoRegionIsTold) {
  Renew(/*shared_memory=*/false);
  regions_.Add(memory_->lent());
  Send(1, {Lent(0, kLarge)});
  EXPECT_EQ(Written(), Announcement(0, 1, kLarge));
}

TEST_F(LendingStreamTest, WhatTheOtherSideKnowsIsForgottenAtOnce) {
  regions_.Add(memory_->lent());
  Send(1, {Lent(0, kLarge)});
  Written();
  stream_->Forget(2);
  EXPECT_THAT(work_list_, IsEmpty());
  stream_->Forget(1);
  EXPECT_EQ(Written(), BytesOfObject(FrameHeader{.kind = FrameKind::kForget, .region = 1}));
  stream_->Forget(1);
  EXPECT_THAT(work_list_, IsEmpty());
}

TEST_F(LendingStreamTest, NoMoreThan4096RegionsAreTold) {
  const auto memory = SealedMemory::Create((kRegionsMax + 1) * kLarge);
  for (size_t i = 0; i <= kRegionsMax; ++i) {
    const std::span<std::byte> bytes = memory->bytes().subspan(i * kLarge, kLarge);
    regions_.Add({.bytes = bytes, .fd = memory->fd()});
    Send(i, {PieceOf(bytes)});
    const std::string written = Written();
    const size_t with_region = 2 * sizeof(FrameHeader) + kAnnounceBytes + sizeof(RemotePiece);
    ASSERT_EQ(written.size(), i < kRegionsMax ? with_region : kAnnounceBytes) << i;
  }
  // The place of one that is forgotten is free.
  stream_->Forget(1);
  Written();
  Send(kRegionsMax + 1, {PieceOf(memory->bytes().last(kLarge))});
  EXPECT_THAT(Written(), testing::StartsWith(BytesOfObject(
                             FrameHeader{.kind = FrameKind::kRegion, .region = kRegionsMax + 1})));
}

TEST_F(OutgoingStreamTest, ItsEndCompletesAllThatIsNotSent) {
  SendBytes(1, std::string(kLarge, 'x'));
  SendBytes(2, std::string(kLarge, 'x'));
  SendBytes(3, std::string(kLarge, 'x'));
  SendBytes(4, "abc");
  Written();
  Answer(FrameKind::kTake, 1);
  Answer(FrameKind::kDone, 2);
  Written(1);
  SendBytes(5, "abc");
  SendBytes(6, std::string(kLarge, 'x'));
  EXPECT_THAT(Events(), ElementsAre("sent 4 OK", "sent 3 OK"));
  stream_->End(absl::CancelledError("ended"));
  EXPECT_TRUE(stream_->ended());
  EXPECT_TRUE(peer_.IsClosed());
  EXPECT_THAT(Events(), ElementsAre("sent 5 CANCELLED", "sent 1 CANCELLED", "sent 2 CANCELLED",
                                    "sent 6 CANCELLED"));
  stream_->End(absl::CancelledError("again"));
  EXPECT_THAT(Events(), IsEmpty());
}

TEST_F(OutgoingStreamTest, TheEndOfTheOtherSideIsAnError) {
  peer_.Close();
  EXPECT_THAT(stream_->Read(kMuch),
              StatusIs(absl::StatusCode::kUnavailable, "the other side closed the connection"));
  SendBytes(1, "abc");
  EXPECT_THAT(Work(kMuch), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("sending: ")));
}

}  // namespace
}  // namespace crossmesh
