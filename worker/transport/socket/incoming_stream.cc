#include "worker/transport/socket/incoming_stream.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <utility>

#include <absl/strings/str_cat.h>

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

IncomingStream::IncomingStream(UniqueFd fd, const Shared& shared)
    : SocketStream(std::move(fd), shared.work_list),
      told_(shared.told),
      pool_(shared.pool),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(kBufferBytes)),
      regions_(shared.unmapped) {}

absl::Status IncomingStream::Admit(bool shared_memory) {
  admitted_ = true;
  if (shared_memory) regions_.MapFrom(handshake_->nonce_file.pid);
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
    // One place is left for the buffer.
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
    if (says_done_) Answer({.kind = FrameKind::kDone, .id = receiving_.front().id});
    FinishFirst(absl::OkStatus());
    return true;
  }
  if (!handshake_.has_value()) {
    if (buffered() < sizeof(SocketHandshake)) return false;
    std::memcpy(&handshake_.emplace(), buffer_.get() + begin_, sizeof(SocketHandshake));
    begin_ += sizeof(SocketHandshake);
  }
  // Frames that came with the handshake stay in the buffer until the transport has admitted it.
  FrameHeader frame;
  if (!admitted_ || buffered() < sizeof(frame)) return false;
  std::memcpy(&frame, buffer_.get() + begin_, sizeof(frame));
  switch (frame.kind) {
    case FrameKind::kAnnounce:
      return ParseAnnouncement(frame);
    case FrameKind::kRegion:
      return ParseRegion(frame);
    case FrameKind::kForget:
      RETURN_IF_ERROR(ParseForget(frame));
      return true;
    case FrameKind::kPayload:
      RETURN_IF_ERROR(ParsePayload(frame));
      return true;
    case FrameKind::kTake:
    case FrameKind::kDone:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("frame: expected kind ", ToNumber(FrameKind::kAnnounce), ", ",
                   ToNumber(FrameKind::kPayload), ", ", ToNumber(FrameKind::kRegion), " or ",
                   ToNumber(FrameKind::kForget), ", found ", ToNumber(frame.kind)));
}

absl::Status IncomingStream::ParsePayload(const FrameHeader& frame) {
  if (receiving_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("payload of message ", frame.id, ": expected none, since none was asked for"));
  }
  // Payloads come in the order in which they were asked for.
  if (receiving_.front().id != frame.id) {
    return absl::InvalidArgumentError(absl::StrCat("payload: expected that of message ",
                                                   receiving_.front().id, ", found ", frame.id));
  }
  begin_ += sizeof(frame);
  in_payload_ = true;
  says_done_ = frame.pieces == FrameHeader::kSayDone;
  return absl::OkStatus();
}

absl::StatusOr<bool> IncomingStream::ParseRegion(const FrameHeader& frame) {
  RegionFile file;
  if (buffered() < sizeof(frame) + sizeof(file)) return false;
  std::memcpy(&file, buffer_.get() + begin_ + sizeof(frame), sizeof(file));
  begin_ += sizeof(frame) + sizeof(file);
  if (handshake_->shared_memory == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("region ", frame.region, ": expected none without shared memory"));
  }
  RETURN_IF_ERROR(regions_.Add(frame.region, file));
  return true;
}

absl::Status IncomingStream::ParseForget(const FrameHeader& frame) {
  begin_ += sizeof(frame);
  return regions_.Forget(frame.region);
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
  if (!announced.whole && frame.pieces > 0) {
    RETURN_IF_ERROR(ParsePieces(offset, frame, announced));
  } else if (more > 0) {
    announced.payload = {buffer_.get() + offset, more};
  }
  begin_ = offset + more;
  told_.AddMessage(std::unique_ptr<SocketMessage>(
      new (pool_) SocketMessage(*this, told_, std::move(announced))));
  RETURN_IF_ERROR(CheckBound());
  return true;
}

absl::Status IncomingStream::ParsePieces(size_t offset, const FrameHeader& frame,
                                         SocketMessage::Announced& announced) {
  ASSIGN_OR_RETURN(announced.region, regions_.Find(frame.region));
  const PeerRegion& region = *announced.region;
  announced.remote = SpareList();
  uint64_t left = announced.header.payload_bytes;
  for (uint32_t i = 0; i < frame.pieces; ++i) {
    RemotePiece piece;
    std::memcpy(&piece, buffer_.get() + offset + i * sizeof(piece), sizeof(piece));
    if (piece.bytes == 0 || piece.bytes > left) {
      return absl::InvalidArgumentError(absl::StrCat("announcement: expected a piece of 1 to ",
                                                     left, " bytes, found ", piece.bytes));
    }
    // By subtraction, since a sum could overflow.
    if (piece.bytes > region.size() || piece.offset > region.size() - piece.bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("announcement: expected a piece in region ", region.id(), " of ",
                       region.size(), " bytes, found ", piece.bytes, " bytes at ", piece.offset));
    }
    left -= piece.bytes;
    // It could not be mapped here: the payload is asked for, and comes by the socket.
    if (region.bytes().empty()) continue;
    announced.remote.push_back(PieceOf(region.bytes().subspan(piece.offset, piece.bytes)));
  }
  if (left == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("announcement of ", announced.header.payload_bytes,
                                                 " bytes: its pieces lack ", left));
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
  if (message.announced_.region != nullptr) ++message.announced_.region->payloads;
}

void IncomingStream::Release(SocketMessage& message) {
  pages_ -= message.pages();
  message.stream_ = nullptr;
  (message.previous_ == nullptr ? messages_ : message.previous_->next_) = message.next_;
  if (message.next_ != nullptr) message.next_->previous_ = message.previous_;
  if (message.announced_.region != nullptr) --message.announced_.region->payloads;
}

void IncomingStream::Drop(SocketMessage& message) {
  Release(message);
  if (message.announced_.whole) return;
  // Unread, and answered all the same: the sender keeps its payload until then.
  Answer({.kind = FrameKind::kDone, .id = message.announced_.id});
  KeepList(std::move(message.announced_.remote));
}

void IncomingStream::Receive(SocketMessage& message, Pieces into, Ticket ticket) {
  Release(message);
  SocketMessage::Announced& announced = message.announced_;
  if (announced.remote.empty()) {
    receiving_.Push({.id = announced.id, .into = PieceCursor(into), .ticket = ticket});
    return Answer({.kind = FrameKind::kTake, .pieces = FrameHeader::kSayDone, .id = announced.id});
  }
  ++announced.region->payloads;
  const PieceCursor from(announced.remote);
  copying_.Push({.id = announced.id,
                 .region = announced.region,
                 .remote = std::move(announced.remote),
                 .from = from,
                 .into = PieceCursor(into),
                 .ticket = ticket});
  WantWork();
}

void IncomingStream::Answer(const FrameHeader& answer) {
  answers_.PushObject(answer);
  WantWork();
}

absl::Status IncomingStream::DoWork(size_t bytes_max) {
  CopyPayloads(bytes_max);
  return WriteAnswers();
}

void IncomingStream::CopyPayloads(size_t bytes_max) {
  for (size_t copied = 0; !copying_.empty() && copied < bytes_max;) {
    Copying& first = copying_.front();
    copied += CopyNext(first.from, first.into, bytes_max - copied);
    if (!first.into.done()) break;
    --first.region->payloads;
    Answer({.kind = FrameKind::kDone, .id = first.id});
    KeepList(std::move(first.remote));
    told_.AddReceived(copying_.Pop().ticket, absl::OkStatus());
  }
  if (!copying_.empty()) WantWork();
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
  while (!copying_.empty()) told_.AddReceived(copying_.Pop().ticket, why);
  regions_.Clear();
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
