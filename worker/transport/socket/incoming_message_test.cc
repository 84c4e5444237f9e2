#include "worker/transport/socket/incoming_message.h"

#include "common/testing/status_matchers.h"
#include "worker/transport/socket/testing/incoming_stream_fixture.h"
#include "worker/transport/testing/sealed_memory.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class IncomingMessageTest : public IncomingStreamTest {};

TEST_F(IncomingMessageTest, PayloadsOfUpTo4096BytesAreThereAndLargerOnesAskedFor) {
  Greet();
  const std::string payload(4096, 'x');
  peer_.Send(absl::StrCat(Announcement(1, 4096), payload, Announcement(2, 4097)));
  ASSERT_OK(stream_->Read(kMuch));
  told_.TellTo(sink_);
  ASSERT_EQ(sink_.messages.size(), 2);
  Receive(0, 1);
  EXPECT_EQ(place(0), payload);
  EXPECT_THAT(Answers(), IsEmpty());
  EXPECT_THAT(Events(), ElementsAre("message 1", "message 2", "received 1 OK"));
  Receive(1, 2);
  const std::vector<FrameHeader> answers = Answers();
  ASSERT_EQ(answers.size(), 1);
  EXPECT_EQ(answers[0].kind, FrameKind::kTake);
  EXPECT_EQ(answers[0].pieces, FrameHeader::kSayDone);
  EXPECT_EQ(answers[0].id, 2);
  // Answered, they are not answered again when they go.
  DropHeld();
  EXPECT_THAT(Answers(), IsEmpty());
  EXPECT_THAT(Events(), IsEmpty());
}

TEST_F(IncomingMessageTest, WhatIsDroppedAndAnsweredMakesPlace) {
  Greet();
  for (uint64_t batch = 0; batch < 70; ++batch) {
    peer_.Send(Announcements(0, 1000, kLarge));
    ASSERT_OK(stream_->Read(kMuch)) << batch;
    told_.TellTo(sink_);
    DropHeld();
    const std::vector<FrameHeader> answers = Answers();
    ASSERT_EQ(answers.size(), 1000);
    EXPECT_EQ(answers[999].kind, FrameKind::kDone);
    EXPECT_EQ(answers[999].id, 999);
  }
}

TEST_F(IncomingMessageTest, WhatIsReceivedWholeMakesPlaceThoughItIsHeld) {
  Greet();
  for (uint64_t batch = 0; batch < 70; ++batch) {
    peer_.Send(Announcements(0, 1000, 0));
    ASSERT_OK(stream_->Read(kMuch)) << batch;
    told_.TellTo(sink_);
    for (size_t i = 1000 * batch; i < sink_.messages.size(); ++i) {
      sink_.messages[i]->Receive({}, i);
    }
  }
  EXPECT_EQ(sink_.messages.size(), 70'000);
}

TEST_F(IncomingMessageTest, PayloadsInARegionAreCopiedAsFarAsMayBe) {
  Greet(/*shared_memory=*/true);
  std::ranges::fill(memory_->bytes(), std::byte{'x'});
  // The second one ends where the region does.
  peer_.Send(absl::StrCat(Lending(), Announcement(1, kLarge, 1),
                          BytesOfObject(RemotePiece{.bytes = kLarge}), Announcement(2, kLarge, 1),
                          BytesOfObject(RemotePiece{.offset = 2 * kLarge, .bytes = kLarge})));
  ASSERT_OK(stream_->Read(kMuch));
  told_.TellTo(sink_);
  EXPECT_EQ(SealedMemory::CountMappings(), 2);
  Receive(0, 1);
  Receive(1, 2);
  EXPECT_THAT(Events(), ElementsAre("message 1", "message 2"));
  ASSERT_OK(Work(1));
  EXPECT_EQ(place(0), "x" + std::string(kLarge - 1, '\0'));
  ASSERT_OK(Work(kLarge - 1));
  EXPECT_EQ(place(0), std::string(kLarge, 'x'));
  EXPECT_EQ(place(1), std::string(kLarge, '\0'));
  EXPECT_THAT(Events(), ElementsAre("received 1 OK"));
  EXPECT_THAT(peer_.ReadObjects<FrameHeader>(), SizeIs(1));
  ASSERT_OK(Work(kMuch));
  EXPECT_EQ(place(1), std::string(kLarge, 'x'));
  EXPECT_THAT(Events(), ElementsAre("received 2 OK"));
  EXPECT_THAT(peer_.ReadObjects<FrameHeader>(), SizeIs(1));
  // Because of the answer, which is sent already.
  ASSERT_OK(Work(kMuch));
  EXPECT_THAT(work_list_, IsEmpty());
  // Nothing is in the region any more.
  peer_.Send(Forgetting());
  EXPECT_OK(stream_->Read(kMuch));
  EXPECT_EQ(SealedMemory::CountMappings(), 1);
}

TEST_F(IncomingMessageTest, APieceMayBeAWholeRegionAndNoMore) {
  for (const uint64_t more : {0, 1}) {
    Renew();
    Greet(/*shared_memory=*/true);
    const uint64_t bytes = memory_->bytes().size() + more;
    peer_.Send(absl::StrCat(Lending(), Announcement(1, bytes, 1),
                            BytesOfObject(RemotePiece{.bytes = bytes})));
    const absl::Status status = stream_->Read(kMuch);
    if (more == 0) {
      EXPECT_OK(status);
    } else {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                   "announcement: expected a piece in region 7 of 15000 bytes, "
                                   "found 15001 bytes at 0"));
    }
  }
}

TEST_F(IncomingMessageTest, AListOfPiecesIsNotMixedWithTheOneBefore) {
  Greet(/*shared_memory=*/true);
  peer_.Send(Lending());
  for (const uint64_t id : {1, 2}) {
    std::ranges::fill(memory_->bytes(), std::byte{'x'});
    memory_->bytes()[id] = std::byte{'y'};
    peer_.Send(absl::StrCat(Announcement(id, kLarge, 2),
                            BytesOfObject(RemotePiece{.offset = id, .bytes = 1}),
                            BytesOfObject(RemotePiece{.offset = 5, .bytes = kLarge - 1})));
    ASSERT_OK(stream_->Read(kMuch));
    told_.TellTo(sink_);
    Receive(0, id);
    DropHeld();
    ASSERT_OK(Work(kMuch));
    EXPECT_EQ(place(id - 1), "y" + std::string(kLarge - 1, 'x'));
  }
}

TEST_F(IncomingMessageTest, MessagesThatWaitFailWhenItEndsInWhateverOrderOthersWent) {
  const std::vector<std::vector<size_t>> orders = {{},     {0},    {1},    {2},    {3},    {1, 2},
                                                   {2, 1}, {0, 1}, {1, 0}, {3, 2}, {2, 3}, {3, 0}};
  for (const std::vector<size_t>& gone : orders) {
    Renew();
    Greet();
    peer_.Send(Announcements(0, 4, kLarge));
    ASSERT_OK(stream_->Read(kMuch));
    told_.TellTo(sink_);
    for (const size_t index : gone) Receive(index, index);
    sink_.TakeEvents();
    stream_->End(absl::UnavailableError("gone"));
    std::vector<std::string> expected;
    for (const size_t index : gone) {
      expected.push_back(absl::StrCat("received ", index, " UNAVAILABLE"));
    }
    EXPECT_EQ(Events(), expected);
    expected.clear();
    for (size_t index = 0; index < 4; ++index) {
      if (std::ranges::find(gone, index) != gone.end()) continue;
      Receive(index, index);
      expected.push_back(absl::StrCat("received ", index, " UNAVAILABLE"));
    }
    EXPECT_EQ(Events(), expected);
  }
}

TEST_F(IncomingMessageTest, ItsEndGivesBackAllThatItHad) {
  Greet(/*shared_memory=*/true);
  peer_.Send(absl::StrCat(Lending(), Announcement(1, kLarge, 1),
                          BytesOfObject(RemotePiece{.bytes = kLarge})));
  ASSERT_OK(stream_->Read(kMuch));
  told_.TellTo(sink_);
  Receive(0, 1);
  stream_->End(absl::UnavailableError("gone"));
  EXPECT_TRUE(stream_->ended());
  EXPECT_TRUE(peer_.IsClosed());
  EXPECT_EQ(SealedMemory::CountMappings(), 1);
  EXPECT_THAT(Events(), ElementsAre("message 1", "received 1 UNAVAILABLE"));
  stream_->End(absl::UnavailableError("again"));
  EXPECT_THAT(Events(), IsEmpty());
}

}  // namespace
}  // namespace crossmesh
