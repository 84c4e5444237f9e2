#include "worker/transport/socket/incoming_stream.h"

#include "common/testing/status_matchers.h"
#include "worker/transport/socket/testing/incoming_stream_fixture.h"
#include "worker/transport/socket/testing/refused_calls.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr size_t kBufferBytes = 64 << 10;
constexpr size_t kAheadBytes = 4 << 10;

TEST_F(IncomingStreamTest, WhatIsAnnouncedIsToldWithItsLastByteWhereverItIsCut) {
  const std::string lending = Lending();
  const std::string handshake = BytesOfObject(Handshake(/*shared_memory=*/true));
  const std::vector<std::string> announcements = {
      Announcement(1, kLarge, 1) + BytesOfObject(RemotePiece{.bytes = kLarge}),
      Announcement(2, 3) + "abc", Announcement(3, kLarge), Announcement(4, 0)};
  std::string all = handshake + lending;
  std::vector<size_t> ends;
  for (const std::string& announcement : announcements) {
    all += announcement;
    ends.push_back(all.size());
  }
  for (size_t cut = 1; cut <= all.size(); ++cut) {
    Renew();
    peer_.Send(absl::string_view(all).substr(0, cut));
    ASSERT_OK(stream_->Read(kMuch));
    ASSERT_EQ(stream_->handshake().has_value(), cut >= handshake.size()) << cut;
    if (stream_->handshake().has_value()) ASSERT_OK(stream_->Admit(true));
    const auto whole = std::ranges::upper_bound(ends, cut) - ends.begin();
    ASSERT_EQ(told_.TellTo(sink_), whole) << cut;
    peer_.Send(absl::string_view(all).substr(cut));
    if (cut < all.size()) ASSERT_OK(stream_->Read(kMuch));
    if (cut < handshake.size()) ASSERT_OK(stream_->Admit(true));
    told_.TellTo(sink_);
    ASSERT_THAT(sink_.TakeEvents(), ElementsAre("message 1", "message 2", "message 3", "message 4"))
        << cut;
  }
}

TEST_F(IncomingStreamTest, PayloadsAndOtherFramesMayComeByteByByte) {
  Greet(/*shared_memory=*/true);
  Ask(1, 2);
  const std::string first(kLarge, 'x');
  const std::string second(kLarge, 'y');
  const std::string all =
      absl::StrCat(Lending(), PayloadHeader(1), first, Forgetting(), PayloadHeader(2), second);
  const size_t first_end = all.size() - 2 * sizeof(FrameHeader) - second.size();
  for (size_t i = 0; i < all.size(); ++i) {
    peer_.Send(all.substr(i, 1));
    ASSERT_OK(stream_->Read(kMuch)) << i;
    ASSERT_EQ(told_.TellTo(sink_), i + 1 == first_end || i + 1 == all.size() ? 1 : 0) << i;
  }
  EXPECT_THAT(sink_.TakeEvents(),
              ElementsAre("message 1", "message 2", "received 1 OK", "received 2 OK"));
  EXPECT_EQ(place(0), first);
  EXPECT_EQ(place(1), second);
}

TEST_F(IncomingStreamTest, WhenAPayloadHasComeItsSenderIsToldIfItAsks) {
  Greet();
  Ask(1, 2);
  Events();
  const auto asking = [](uint64_t id) {
    return BytesOfObject(
        FrameHeader{.kind = FrameKind::kPayload, .pieces = FrameHeader::kSayDone, .id = id});
  };
  const std::string payload(kLarge, 'x');
  peer_.Send(absl::StrCat(asking(1), payload.substr(1)));
  ASSERT_OK(stream_->Read(kMuch));
  EXPECT_THAT(work_list_, IsEmpty());
  peer_.Send(absl::StrCat("x", PayloadHeader(2), payload));
  ASSERT_OK(stream_->Read(kMuch));
  EXPECT_THAT(Events(), ElementsAre("received 1 OK", "received 2 OK"));
  std::vector<FrameHeader> answers = Answers();
  ASSERT_EQ(answers.size(), 1);
  EXPECT_EQ(answers[0].kind, FrameKind::kDone);
  EXPECT_EQ(answers[0].id, 1);
}

TEST_F(IncomingStreamTest, AFrameThatIsNotCompleteIsNoError) {
  Greet(/*shared_memory=*/true);
  const std::string unknown = BytesOfObject(FrameHeader{.kind = FrameKind{9}});
  peer_.Send(unknown.substr(0, 23));
  EXPECT_OK(stream_->Read(kMuch));
  peer_.Send(unknown.substr(23));
  EXPECT_THAT(stream_->Read(kMuch),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found 9")));
}

TEST_F(IncomingStreamTest, BeforeItIsAdmittedNothingIsMadeOfFramesAndNoMoreOfThemRead) {
  peer_.Send(BytesOfObject(Handshake(false)) + Announcements(0, 1000, 0));
  const size_t sent = peer_.Unread(stream_->fd());
  ASSERT_OK(stream_->Read(kMuch));
  EXPECT_TRUE(stream_->handshake().has_value());
  EXPECT_EQ(peer_.Unread(stream_->fd()), sent - kBufferBytes);
  EXPECT_THAT(Events(), IsEmpty());
  ASSERT_OK(stream_->Admit(false));
  EXPECT_EQ(Events().size(), (kBufferBytes - sizeof(SocketHandshake)) / kAnnounceBytes);
  ASSERT_OK(stream_->Read(kMuch));
  told_.TellTo(sink_);
  ASSERT_EQ(sink_.messages.size(), 1000);
  EXPECT_EQ(sink_.messages[999]->header().sequence, 999);
}

TEST_F(IncomingStreamTest, AReadGoesOnUntilNothingIsLeft) {
  Greet();
  peer_.Send(Announcements(0, 1600, 0));
  EXPECT_GT(peer_.Unread(stream_->fd()), 2 * kBufferBytes);
  ASSERT_OK(stream_->Read(kMuch));
  EXPECT_EQ(peer_.Unread(stream_->fd()), 0);
  EXPECT_EQ(Events().size(), 1600);
}

TEST_F(IncomingStreamTest, OfAPayloadNoMoreIsReadThanMayBe) {
  Greet();
  Ask(1, 1);
  peer_.Send(PayloadHeader(1));
  ASSERT_OK(stream_->Read(kMuch));
  peer_.Send(std::string(3000, 'x'));
  ASSERT_OK(stream_->Read(1000));
  EXPECT_EQ(peer_.Unread(stream_->fd()), 2000);
  EXPECT_EQ(place(0), std::string(1000, 'x') + std::string(4000, '\0'));
  ASSERT_OK(stream_->Read(1));
  EXPECT_EQ(peer_.Unread(stream_->fd()), 1999);
  EXPECT_EQ(place(0), std::string(1001, 'x') + std::string(3999, '\0'));
  ASSERT_OK(stream_->Read(kMuch));
  peer_.Send(std::string(2000, 'x'));
  EXPECT_THAT(Events(), ElementsAre("message 1"));
  ASSERT_OK(stream_->Read(kMuch));
  EXPECT_THAT(Events(), ElementsAre("received 1 OK"));
  EXPECT_EQ(place(0), std::string(kLarge, 'x'));
}

TEST_F(IncomingStreamTest, WherePayloadsComeNextLittleIsReadAhead) {
  const std::string ahead = Announcements(10, 1000, 0);
  // Nothing was asked for.
  Greet();
  peer_.Send(ahead);
  ASSERT_OK(stream_->Read(1));
  EXPECT_EQ(peer_.Unread(stream_->fd()), ahead.size() - kBufferBytes);
  // A payload was asked for, and has not begun.
  Renew();
  Greet();
  Ask(1, 1);
  peer_.Send(ahead);
  ASSERT_OK(stream_->Read(1));
  EXPECT_EQ(peer_.Unread(stream_->fd()), ahead.size() - kAheadBytes);
  for (const uint64_t asked_for : {1, 2}) {
    // The first one has begun, and comes whole with this read.
    Renew();
    Greet();
    Ask(1, asked_for);
    peer_.Send(PayloadHeader(1));
    ASSERT_OK(stream_->Read(kMuch));
    peer_.Send(std::string(kLarge, 'x') + ahead);
    ASSERT_OK(stream_->Read(kLarge));
    EXPECT_EQ(peer_.Unread(stream_->fd()),
              ahead.size() - (asked_for == 1 ? kBufferBytes : kAheadBytes));
  }
}

TEST_F(IncomingStreamTest, APayloadMayGoInto1024Pieces) {
  Greet();
  peer_.Send(Announcement(1, 8192));
  ASSERT_OK(stream_->Read(kMuch));
  told_.TellTo(sink_);
  std::string place(8192, '\0');
  std::vector<iovec> pieces;
  for (size_t i = 0; i < kPiecesMax; ++i) {
    pieces.push_back(PieceOf(std::as_bytes(std::span(place).subspan(8 * i, 8))));
  }
  sink_.messages[0]->Receive(pieces, 1);
  std::string payload(8192, '\0');
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<char>(i % 251);
  peer_.Send(PayloadHeader(1));
  ASSERT_OK(stream_->Read(kMuch));
  peer_.Send(payload + Announcement(2, 0));
  ASSERT_OK(stream_->Read(kMuch));
  EXPECT_THAT(Events(), ElementsAre("message 1", "received 1 OK", "message 2"));
  EXPECT_EQ(place, payload);
}

TEST_F(IncomingStreamTest, AnswersThatTheSocketDoesNotTakeWait) {
  Greet();
  peer_.LimitBytesOnTheWay(stream_->fd());
  peer_.Send(Announcements(0, 2000, kLarge));
  ASSERT_OK(stream_->Read(kMuch));
  told_.TellTo(sink_);
  DropHeld();
  std::string bytes;
  errno = EIO;  // of something else
  ASSERT_OK(Work(kMuch));
  EXPECT_TRUE(stream_->blocked());
  for (int i = 0; stream_->blocked() && i < 10'000; ++i) {
    // Once in vain.
    stream_->Unblock();
    ASSERT_OK(Work(kMuch));
    ASSERT_TRUE(stream_->blocked());
    bytes += peer_.ReadBytes();
    stream_->Unblock();
    stream_->Unblock();
    errno = EIO;
    ASSERT_OK(Work(kMuch));
  }
  bytes += peer_.ReadBytes();
  const auto answers = ObjectsOf<FrameHeader>(bytes);
  ASSERT_EQ(answers.size(), 2000);
  for (uint64_t i = 0; i < 2000; ++i) EXPECT_EQ(answers[i].id, i);
  EXPECT_THAT(work_list_, IsEmpty());
}

TEST_F(IncomingStreamTest, WhereNothingHasComeThereIsNoError) {
  Greet();
  EXPECT_OK(stream_->Read(kMuch));
  peer_.Send(Announcement(1, 0));
  EXPECT_OK(stream_->Read(kMuch));
  EXPECT_THAT(Events(), ElementsAre("message 1"));
}

TEST_F(IncomingStreamTest, TheEndOfTheOtherSideIsOne) {
  Greet();
  peer_.Close();
  errno = EAGAIN;  // of something else
  EXPECT_THAT(stream_->Read(kMuch),
              StatusIs(absl::StatusCode::kUnavailable, "the other side closed the connection"));
}

TEST_F(IncomingStreamTest, AnAnswerToOneThatHasGoneIsAnError) {
  Greet();
  peer_.Send(Announcement(1, kLarge));
  ASSERT_OK(stream_->Read(kMuch));
  told_.TellTo(sink_);
  DropHeld();
  peer_.Close();
  EXPECT_THAT(Work(kMuch), StatusIs(absl::StatusCode::kUnavailable, "sending: Broken pipe"));
}

TEST_F(IncomingStreamTest, AReadThatASignalInterruptsIsNoErrorAndOthersAre) {
  Greet();
  absl::Status interrupted = absl::UnknownError("did not run");
  absl::Status broken;
  RunRefused(SYS_readv, EINTR, [&] { interrupted = stream_->Read(kMuch); });
  RunRefused(SYS_readv, ECONNRESET, [&] { broken = stream_->Read(kMuch); });
  EXPECT_OK(interrupted);
  EXPECT_THAT(broken,
              StatusIs(absl::StatusCode::kUnavailable, "receiving: Connection reset by peer"));
}

TEST_F(IncomingStreamTest, AWriteThatASignalInterruptsIsDoneAgain) {
  Greet();
  peer_.Send(Announcement(1, kLarge));
  ASSERT_OK(stream_->Read(kMuch));
  told_.TellTo(sink_);
  DropHeld();
  absl::Status interrupted = absl::UnknownError("did not run");
  RunRefused(SYS_sendmsg, EINTR, [&] { interrupted = Work(kMuch); });
  EXPECT_OK(interrupted);
  EXPECT_TRUE(stream_->blocked());
  stream_->Unblock();
  EXPECT_THAT(Answers(), SizeIs(1));
  EXPECT_FALSE(stream_->blocked());
}

}  // namespace
}  // namespace crossmesh
