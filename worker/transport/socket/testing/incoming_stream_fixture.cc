#include "worker/transport/socket/testing/incoming_stream_fixture.h"

#include "common/testing/status_matchers.h"

#include <span>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <unistd.h>

namespace crossmesh {

void IncomingStreamTest::Renew() {
  if (stream_ != nullptr) stream_->End(absl::CancelledError("the test is over"));
  told_.Clear();
  sink_.messages.clear();
  sink_.events.clear();
  work_list_.clear();
  places_.clear();
  peer_ = StreamPeer();
  stream_ = std::make_unique<IncomingStream>(
      peer_.TakeOther(),
      IncomingStream::Shared{
          .work_list = work_list_, .told = told_, .pool = pool_, .unmapped = unmapped_});
}

SocketHandshake IncomingStreamTest::Handshake(bool shared_memory) {
  return {.shared_memory = shared_memory ? 1U : 0U,
          .nonce_file = {.pid = static_cast<uint32_t>(getpid())},
          .number = 1};
}

std::string IncomingStreamTest::Announcement(uint64_t id, uint64_t bytes, uint32_t pieces) {
  const FrameHeader frame = {
      .kind = FrameKind::kAnnounce, .pieces = pieces, .id = id, .region = kRegion};
  return absl::StrCat(BytesOfObject(frame),
                      BytesOfObject(MessageHeader{.sequence = id, .payload_bytes = bytes}));
}

std::string IncomingStreamTest::Announcements(uint64_t first, uint64_t count, uint64_t bytes) {
  std::string all;
  for (uint64_t id = first; id < first + count; ++id) all += Announcement(id, bytes);
  return all;
}

std::string IncomingStreamTest::PayloadHeader(uint64_t id) {
  return BytesOfObject(FrameHeader{.kind = FrameKind::kPayload, .id = id});
}

std::string IncomingStreamTest::Lending() const {
  const RegionFile file = {.bytes = memory_->bytes().size(),
                           .inode = memory_->inode(),
                           .fd = static_cast<uint32_t>(memory_->fd())};
  return absl::StrCat(BytesOfObject(FrameHeader{.kind = FrameKind::kRegion, .region = kRegion}),
                      BytesOfObject(file));
}

std::string IncomingStreamTest::Forgetting() {
  return BytesOfObject(FrameHeader{.kind = FrameKind::kForget, .region = kRegion});
}

void IncomingStreamTest::Greet(bool shared_memory) {
  peer_.Send(BytesOfObject(Handshake(shared_memory)));
  ASSERT_OK(stream_->Read(kMuch));
  ASSERT_TRUE(stream_->handshake().has_value());
  ASSERT_OK(stream_->Admit(shared_memory));
}

void IncomingStreamTest::Ask(uint64_t first, uint64_t count) {
  peer_.Send(Announcements(first, count, kLarge));
  ASSERT_OK(stream_->Read(kMuch));
  told_.TellTo(sink_);
  for (uint64_t id = first; id < first + count; ++id) Receive(id - first, id);
  DropHeld();
  EXPECT_EQ(Answers().size(), count);
}

void IncomingStreamTest::Receive(size_t index, Ticket ticket) {
  IncomingMessage& message = *sink_.messages.at(index);
  Place& place = *places_.emplace_back(std::make_unique<Place>());
  place.bytes.resize(message.header().payload_bytes);
  if (!place.bytes.empty()) place.pieces = {PieceOf(std::as_bytes(std::span(place.bytes)))};
  message.Receive(place.pieces, ticket);
}

void IncomingStreamTest::DropHeld() {
  for (std::unique_ptr<IncomingMessage>& message : sink_.messages) message.reset();
  sink_.messages.clear();
}

std::vector<std::string> IncomingStreamTest::Events() {
  told_.TellTo(sink_);
  return sink_.TakeEvents();
}

absl::Status IncomingStreamTest::Work(size_t bytes_max) {
  EXPECT_THAT(work_list_, testing::ElementsAre(stream_.get()));
  work_list_.clear();
  return stream_->Work(bytes_max);
}

std::vector<FrameHeader> IncomingStreamTest::Answers() {
  if (!work_list_.empty()) EXPECT_OK(Work(kMuch));
  return peer_.ReadObjects<FrameHeader>();
}

}  // namespace crossmesh
