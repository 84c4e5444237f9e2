#include "worker/transport/socket/testing/outgoing_stream_fixture.h"

#include "common/testing/status_matchers.h"

#include <span>
#include <utility>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>

namespace crossmesh {

void OutgoingStreamTest::Renew(bool shared_memory, Reach reach) {
  if (stream_ != nullptr) stream_->End(absl::CancelledError("another follows"));
  told_.Clear();
  work_list_.clear();
  peer_ = StreamPeer();
  handshake_ = {.shared_memory = shared_memory ? 1U : 0U, .number = 3};
  stream_ = std::make_unique<OutgoingStream>(
      peer_.TakeOther(), reach, handshake_,
      OutgoingStream::Shared{.regions = regions_, .work_list = work_list_, .told = told_});
  EXPECT_EQ(Written(1), BytesOfObject(handshake_));
  EXPECT_THAT(work_list_, testing::IsEmpty());
}

iovec OutgoingStreamTest::Piece(std::string bytes) {
  payloads_.push_back(std::make_unique<std::string>(std::move(bytes)));
  return PieceOf(std::as_bytes(std::span(*payloads_.back())));
}

void OutgoingStreamTest::Send(Ticket ticket, std::vector<iovec> pieces) {
  lists_.push_back(std::make_unique<std::vector<iovec>>(std::move(pieces)));
  stream_->Send({.sequence = ticket}, *lists_.back(), ticket);
}

absl::Status OutgoingStreamTest::Work(size_t bytes_max) {
  EXPECT_THAT(work_list_, testing::ElementsAre(stream_.get()));
  work_list_.clear();
  return stream_->Work(bytes_max);
}

std::string OutgoingStreamTest::Written(size_t bytes_max) {
  EXPECT_OK(Work(bytes_max));
  return peer_.ReadBytes();
}

void OutgoingStreamTest::Answer(const FrameHeader& answer) {
  peer_.Send(BytesOfObject(answer));
  EXPECT_OK(stream_->Read(kMuch));
}

std::vector<std::string> OutgoingStreamTest::Events() {
  told_.TellTo(sink_);
  return sink_.TakeEvents();
}

std::string OutgoingStreamTest::Announcement(const FrameHeader& frame, uint64_t sequence,
                                             uint64_t bytes) {
  return absl::StrCat(BytesOfObject(frame),
                      BytesOfObject(MessageHeader{.sequence = sequence, .payload_bytes = bytes}));
}

}  // namespace crossmesh
