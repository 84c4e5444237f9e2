#include "worker/transport/socket/outgoing_stream.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Of shorter pieces it costs as much to find the pages as to copy them.
constexpr size_t kPagesPieceBytesMin = 64 << 10;

}  // namespace

OutgoingStream::OutgoingStream(UniqueFd fd, Reach reach, const SocketHandshake& handshake,
                               const Shared& shared)
    : SocketStream(std::move(fd), shared.work_list),
      shared_memory_(handshake.shared_memory != 0),
      regions_(shared.regions),
      gives_pages_(reach == Reach::kInsideHost),
      told_(shared.told) {
  bytes_.PushObject(handshake);
  WantWork();
}

void OutgoingStream::Send(const MessageHeader& message, Pieces payload, Ticket ticket) {
  CHECK_LE(payload.size(), kPiecesMax);
  MessageHeader header = message;
  header.payload_bytes = BytesOf(payload);
  WantWork();
  if (header.payload_bytes <= kInlineBytesMax) return PushInline(header, payload, ticket);
  const uint32_t place = NewPlace();
  messages_[place].state = Message::State::kAnnounced;
  messages_[place].payload = payload;
  messages_[place].ticket = ticket;
  FrameHeader frame = {.kind = FrameKind::kAnnounce, .id = IdOf(place)};
  const LentRegion* const region = FindRegion(payload);
  if (region != nullptr) {
    frame.pieces = static_cast<uint32_t>(payload.size());
    frame.region = region->id;
  }
  bytes_.PushObject(frame);
  bytes_.PushObject(header);
  if (region != nullptr) PushPieces(*region, payload);
}

void OutgoingStream::Forget(uint64_t region) {
  if (known_regions_.erase(region) == 0) return;
  bytes_.PushObject(FrameHeader{.kind = FrameKind::kForget, .region = region});
  WantWork();
}

const LentRegion* OutgoingStream::FindRegion(Pieces payload) {
  const LentRegion* const region = shared_memory_ ? regions_.Find(payload) : nullptr;
  if (region == nullptr || known_regions_.contains(region->id)) return region;
  // The receiver would refuse one more; this payload goes by the socket.
  if (known_regions_.size() == kRegionsMax) return nullptr;
  known_regions_.insert(region->id);
  bytes_.PushObject(FrameHeader{.kind = FrameKind::kRegion, .region = region->id});
  bytes_.PushObject(region->file);
  return region;
}

void OutgoingStream::PushInline(const MessageHeader& header, Pieces payload, Ticket ticket) {
  bytes_.PushObject(FrameHeader{.kind = FrameKind::kAnnounce});
  bytes_.PushObject(header);
  for (const iovec& piece : payload) {
    bytes_.Push({static_cast<const std::byte*>(piece.iov_base), piece.iov_len});
  }
  inline_.Push({.end = bytes_.pushed(), .ticket = ticket});
}

void OutgoingStream::PushPieces(const LentRegion& region, Pieces payload) {
  for (const iovec& piece : payload) {
    const auto offset = static_cast<const std::byte*>(piece.iov_base) - region.bytes.data();
    bytes_.PushObject(RemotePiece{static_cast<uint64_t>(offset), uint64_t{piece.iov_len}});
  }
}

uint32_t OutgoingStream::NewPlace() {
  if (free_.empty()) {
    messages_.emplace_back();
    return static_cast<uint32_t>(messages_.size() - 1);
  }
  const uint32_t place = free_.back();
  free_.pop_back();
  return place;
}

// With the uses of the place, so that a late answer is not taken for one to the next message there.
uint64_t OutgoingStream::IdOf(uint32_t place) const {
  return (uint64_t{messages_[place].uses} << 32) | place;
}

absl::Status OutgoingStream::Read(size_t bytes_max) {
  for (size_t bytes = 0; bytes < bytes_max;) {
    const iovec into = PieceOf(std::span(answers_).subspan(answers_size_));
    ASSIGN_OR_RETURN(const size_t read, ReadInto(std::span(&into, 1)));
    bytes += read;
    answers_size_ += read;
    size_t handled = 0;
    for (; answers_size_ - handled >= sizeof(FrameHeader); handled += sizeof(FrameHeader)) {
      FrameHeader answer;
      std::memcpy(&answer, answers_.data() + handled, sizeof(answer));
      RETURN_IF_ERROR(HandleAnswer(answer));
    }
    answers_size_ -= handled;
    std::memmove(answers_.data(), answers_.data() + handled, answers_size_);
    if (drained()) break;
  }
  return absl::OkStatus();
}

absl::Status OutgoingStream::HandleAnswer(const FrameHeader& answer) {
  const auto place = static_cast<uint32_t>(answer.id);
  if (answer.kind != FrameKind::kDone && answer.kind != FrameKind::kTake) {
    return absl::InvalidArgumentError(
        absl::StrCat("answer: expected kind ", ToNumber(FrameKind::kTake), " or ",
                     ToNumber(FrameKind::kDone), ", found ", ToNumber(answer.kind)));
  }
  const bool is_done = answer.kind == FrameKind::kDone;
  const auto may_answer = [is_done](Message::State state) {
    return state == Message::State::kAnnounced || (is_done && state == Message::State::kSent);
  };
  if (place >= messages_.size() || !may_answer(messages_[place].state) ||
      IdOf(place) != answer.id) {
    return absl::InvalidArgumentError(
        absl::StrCat("answer: expected the id of a message without answer, found ", answer.id));
  }
  if (is_done) {
    Finish(place, absl::OkStatus());
    return absl::OkStatus();
  }
  messages_[place].state = Message::State::kTaken;
  messages_[place].says_done = answer.pieces == FrameHeader::kSayDone;
  taken_.Push(place);
  WantWork();
  return absl::OkStatus();
}

void OutgoingStream::Finish(uint32_t place, const absl::Status& status) {
  Message& message = messages_[place];
  told_.AddSent(message.ticket, status);
  message.state = Message::State::kFree;
  ++message.uses;
  free_.push_back(place);
}

absl::Status OutgoingStream::DoWork(size_t bytes_max) {
  size_t written = 0;
  while (!blocked()) {
    if (current_ == kNone && !taken_.empty()) BeginPayload();
    if (current_ == kNone && bytes_.size() == 0) return absl::OkStatus();
    if (written >= bytes_max) {
      WantWork();
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const size_t step, WriteSome(bytes_max - written));
    written += step;
    Account(step);
  }
  return absl::OkStatus();
}

void OutgoingStream::BeginPayload() {
  current_ = taken_.Pop();
  awaits_done_ = MayGivePages(messages_[current_]);
  bytes_.PushObject(FrameHeader{.kind = FrameKind::kPayload,
                                .pieces = awaits_done_ ? FrameHeader::kSayDone : 0,
                                .id = IdOf(current_)});
  // What is pushed from now on goes after the payload.
  bytes_before_ = bytes_.size();
  left_ = PieceCursor(messages_[current_].payload);
}

bool OutgoingStream::MayGivePages(const Message& message) const {
  return gives_pages_ && message.says_done &&
         BytesOf(message.payload) >= kPagesPieceBytesMin * message.payload.size() &&
         regions_.Find(message.payload) != nullptr;
}

std::optional<size_t> OutgoingStream::WritePagesOf(std::span<const std::byte> piece,
                                                   size_t bytes_max) {
  const iovec whole = PieceOf(piece);
  const LentRegion* const region = regions_.Find(std::span(&whole, 1));
  CHECK(region != nullptr) << "memory of a payload under way was reclaimed";
  return WritePages({.fd = static_cast<int>(region->file.fd),
                     .offset = piece.data() - region->bytes.data(),
                     .bytes = std::min(piece.size(), bytes_max)});
}

absl::StatusOr<size_t> OutgoingStream::WriteSome(size_t bytes_max) {
  const size_t before = current_ == kNone ? bytes_.size() : bytes_before_;
  if (GivesPages() && before == 0) {
    const std::optional<size_t> written = WritePagesOf(left_.Next(), bytes_max);
    if (written.has_value()) return *written;
    gives_pages_ = false;
  }
  std::array<iovec, IOV_MAX> list;
  size_t count = 0;
  // What was pushed before the payload, and as much of that as may go, in one call.
  if (before > 0) list[count++] = PieceOf(bytes_.bytes().first(before));
  if (current_ != kNone && !GivesPages()) {
    count += left_.List(std::span(list).subspan(count), bytes_max).pieces;
  }
  return WriteFrom(std::span(list).first(count), GivesPages());
}

void OutgoingStream::Account(size_t written) {
  const size_t before = current_ == kNone ? bytes_.size() : bytes_before_;
  const size_t from_bytes = std::min(written, before);
  bytes_.Pop(from_bytes);
  while (!inline_.empty() && inline_.front().end <= bytes_.popped()) {
    told_.AddSent(inline_.Pop().ticket, absl::OkStatus());
  }
  if (current_ == kNone) return;
  bytes_before_ -= from_bytes;
  left_.Advance(written - from_bytes);
  if (!left_.done()) return;
  const uint32_t sent = std::exchange(current_, kNone);
  if (!awaits_done_) return Finish(sent, absl::OkStatus());
  messages_[sent].state = Message::State::kSent;
}

void OutgoingStream::CompleteAll(const absl::Status& why) {
  while (!inline_.empty()) told_.AddSent(inline_.Pop().ticket, why);
  for (uint32_t place = 0; place < messages_.size(); ++place) {
    if (messages_[place].state != Message::State::kFree) Finish(place, why);
  }
}

}  // namespace crossmesh
