#include "worker/transport/socket/incoming_stream.h"

#include "common/base/status_macros.h"
#include "worker/transport/socket/vm_read.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <absl/strings/str_cat.h>
#include <limits.h>

namespace crossmesh {
namespace {

constexpr size_t kBufferBytes = 64 << 10;
// What is read where frames are expected, when a payload probably comes next: of that such a part
// has to be copied to its place.
constexpr size_t kPayloadAheadBytes = 4 << 10;
static_assert(kFrameBytesMax <= kBufferBytes);
// A peer with more messages unanswered than this floods: nothing else bounds what it can make this
// side hold. Answers that it does not read count as well.
constexpr int64_t kPagesMax = 64 << 10;

}  // namespace

IncomingStream::IncomingStream(UniqueFd fd, WorkList& work_list, SinkQueue& told)
    : SocketStream(std::move(fd), work_list),
      told_(told),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(kBufferBytes)) {}

absl::Status IncomingStream::Admit() {
  admitted_ = true;
  return Parse();
}

absl::Status IncomingStream::Read(size_t bytes_max) {
  for (size_t bytes = 0; bytes < bytes_max;) {
    ASSIGN_OR_RETURN(const size_t read, ReadSome(bytes_max - bytes));
    bytes += read;
    RETURN_IF_ERROR(Parse());
    if (drained() || !admitted_) break;
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> IncomingStream::ReadSome(size_t bytes_max) {
  if (begin_ > 0) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, buffered());
    end_ -= std::exchange(begin_, 0);
  }
  std::array<iovec, IOV_MAX> list;
  PieceCursor::Listed direct;
  // While a payload comes, the buffer is empty.
  if (in_payload_) {
    direct = receiving_.front().into.List(std::span(list).first(list.size() - 1), bytes_max);
  }
  size_t count = direct.pieces;
  if (direct.all) list[count++] = {.iov_base = buffer_.get() + end_, .iov_len = AheadBytes()};
  ASSIGN_OR_RETURN(const size_t read, ReadInto(std::span(list).first(count)));
  const size_t in_place = std::min(read, direct.bytes);
  if (in_place > 0) receiving_.front().into.Advance(in_place);
  end_ += read - in_place;
  return read;
}

size_t IncomingStream::AheadBytes() const {
  const bool payload_next = receiving_.size() > (in_payload_ ? 1 : 0);
  // Where a frame has begun and is not complete, at least as much again.
  const size_t bytes = payload_next ? std::max(kPayloadAheadBytes, end_) : kBufferBytes;
  return std::min(bytes, kBufferBytes - end_);
}

absl::Status IncomingStream::Parse() {
  while (true) {
    ASSIGN_OR_RETURN(const bool parsed, ParseOne());
    if (!parsed) return absl::OkStatus();
  }
}

absl::StatusOr<bool> IncomingStream::ParseOne() {
  if (in_payload_) {
    begin_ += receiving_.front().into.Fill({buffer_.get() + begin_, buffered()});
    if (!receiving_.front().into.done()) return false;
    in_payload_ = false;
    FinishFirst(absl::OkStatus());
    return true;
  }
  if (!handshake_.has_value()) {
    if (buffered() < sizeof(SocketHandshake)) return false;
    std::memcpy(&handshake_.emplace(), buffer_.get() + begin_, sizeof(SocketHandshake));
    begin_ += sizeof(SocketHandshake);
  }
  FrameHeader frame;
  if (!admitted_ || buffered() < sizeof(frame)) return false;
  std::memcpy(&frame, buffer_.get() + begin_, sizeof(frame));
  if (frame.kind == FrameKind::kAnnounce) return ParseAnnouncement(frame);
  RETURN_IF_ERROR(ParsePayload(frame));
  return true;
}

absl::Status IncomingStream::ParsePayload(const FrameHeader& frame) {
  if (frame.kind != FrameKind::kPayload) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame: expected kind ", ToNumber(FrameKind::kAnnounce), " or ",
                     ToNumber(FrameKind::kPayload), ", found ", ToNumber(frame.kind)));
  }
  if (handshake_->shared_memory != 0 || receiving_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("payload of message ", frame.id, ": expected none, since none was asked for"));
  }
  if (receiving_.front().id != frame.id) {
    return absl::InvalidArgumentError(absl::StrCat("payload: expected that of message ",
                                                   receiving_.front().id, ", found ", frame.id));
  }
  begin_ += sizeof(frame);
  in_payload_ = true;
  return absl::OkStatus();
}

absl::StatusOr<bool> IncomingStream::ParseAnnouncement(const FrameHeader& frame) {
  if (buffered() < kAnnounceBytes) return false;
  SocketMessage::Announced announced = {.id = frame.id};
  MessageHeader& header = announced.header;
  std::memcpy(&header, buffer_.get() + begin_ + sizeof(frame), sizeof(header));
  ASSIGN_OR_RETURN(const size_t more,
                   AnnouncedBytes(frame, header, handshake_->shared_memory != 0));
  if (buffered() < kAnnounceBytes + more) return false;
  const size_t offset = begin_ + kAnnounceBytes;
  announced.whole = header.payload_bytes <= kInlineBytesMax;
  if (!announced.whole) {
    ASSIGN_OR_RETURN(announced.remote, ParsePieces(offset, frame, header));
  } else if (more > 0) {
    announced.payload = std::make_unique_for_overwrite<std::byte[]>(more);
    std::memcpy(announced.payload.get(), buffer_.get() + offset, more);
  }
  begin_ = offset + more;
  told_.AddMessage(std::make_unique<SocketMessage>(*this, told_, std::move(announced)));
  RETURN_IF_ERROR(CheckBound());
  return true;
}

absl::StatusOr<std::vector<iovec>> IncomingStream::ParsePieces(size_t offset,
                                                               const FrameHeader& frame,
                                                               const MessageHeader& header) {
  std::vector<iovec> pieces = SpareList();
  uint64_t left = header.payload_bytes;
  for (uint32_t i = 0; i < frame.pieces; ++i) {
    RemotePiece piece;
    std::memcpy(&piece, buffer_.get() + offset + i * sizeof(piece), sizeof(piece));
    if (piece.bytes == 0 || piece.bytes > left) {
      return absl::InvalidArgumentError(absl::StrCat("announcement: expected a piece of 1 to ",
                                                     left, " bytes, found ", piece.bytes));
    }
    left -= piece.bytes;
    pieces.push_back({.iov_base = reinterpret_cast<void*>(piece.address), .iov_len = piece.bytes});
  }
  if (frame.pieces > 0 && left > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("announcement of ", header.payload_bytes, " bytes: its pieces lack ", left));
  }
  return pieces;
}

absl::Status IncomingStream::CheckBound() const {
  const int64_t pages = pages_ + static_cast<int64_t>(answers_.size() / sizeof(FrameHeader));
  if (pages <= kPagesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("announcements: expected at most ", kPagesMax,
                                                 " pages of them unanswered, found ", pages));
}

void IncomingStream::Hold(SocketMessage& message) {
  message.next_ = messages_;
  if (messages_ != nullptr) messages_->previous_ = &message;
  messages_ = &message;
  pages_ += message.pages();
}

void IncomingStream::Release(SocketMessage& message) {
  pages_ -= message.pages();
  message.stream_ = nullptr;
  (message.previous_ == nullptr ? messages_ : message.previous_->next_) = message.next_;
  if (message.next_ != nullptr) message.next_->previous_ = message.previous_;
}

void IncomingStream::Drop(SocketMessage& message) {
  Release(message);
  if (message.announced_.whole) return;
  answers_.PushObject(FrameHeader{.kind = FrameKind::kDone, .id = message.announced_.id});
  KeepList(std::move(message.announced_.remote));
  WantWork();
}

void IncomingStream::Receive(SocketMessage& message, Pieces into, Ticket ticket) {
  Release(message);
  const uint64_t id = message.announced_.id;
  receiving_.Push({.id = id,
                   .into = PieceCursor(into),
                   .ticket = ticket,
                   .remote = std::move(message.announced_.remote)});
  if (handshake_->shared_memory == 0) {
    answers_.PushObject(FrameHeader{.kind = FrameKind::kTake, .id = id});
  }
  WantWork();
}

absl::Status IncomingStream::DoWork(size_t bytes_max) {
  if (admitted_ && handshake_->shared_memory != 0) RETURN_IF_ERROR(CopyPayloads(bytes_max));
  return WriteAnswers();
}

absl::Status IncomingStream::CopyPayloads(size_t bytes_max) {
  for (size_t copied = 0; !receiving_.empty();) {
    Receiving& first = receiving_.front();
    if (!std::exchange(copying_, true)) remote_left_ = PieceCursor(first.remote);
    if (copied >= bytes_max) {
      WantWork();
      break;
    }
    ASSIGN_OR_RETURN(const size_t step, ReadMemory(static_cast<pid_t>(handshake_->pid),
                                                   remote_left_, first.into, bytes_max - copied));
    copied += step;
    if (!first.into.done()) continue;
    copying_ = false;
    answers_.PushObject(FrameHeader{.kind = FrameKind::kDone, .id = first.id});
    KeepList(std::move(first.remote));
    FinishFirst(absl::OkStatus());
  }
  return absl::OkStatus();
}

absl::Status IncomingStream::WriteAnswers() {
  while (!blocked() && answers_.size() > 0) {
    const iovec from = PieceOf(answers_.bytes());
    ASSIGN_OR_RETURN(const size_t written, WriteFrom(std::span(&from, 1)));
    answers_.Pop(written);
  }
  return absl::OkStatus();
}

void IncomingStream::FinishFirst(const absl::Status& status) {
  told_.AddReceived(receiving_.Pop().ticket, status);
}

void IncomingStream::CompleteAll(const absl::Status& why) {
  while (messages_ != nullptr) Release(*messages_);
  in_payload_ = false;
  while (!receiving_.empty()) FinishFirst(why);
}

std::vector<iovec> IncomingStream::SpareList() {
  if (spare_lists_.empty()) return {};
  std::vector<iovec> list = std::move(spare_lists_.back());
  spare_lists_.pop_back();
  return list;
}

void IncomingStream::KeepList(std::vector<iovec> list) {
  if (list.capacity() == 0) return;
  list.clear();
  spare_lists_.push_back(std::move(list));
}

}  // namespace crossmesh
