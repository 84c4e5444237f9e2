#include "worker/executor/channel_receiver.h"

#include "worker/executor/phase_timer.h"
#include "worker/executor/wire_message.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

MessageKind KindOf(const MessageHeader& header) { return static_cast<MessageKind>(header.kind); }

}  // namespace

ChannelReceiver::ChannelReceiver(TaskContext& context, int32_t channel, PeerId peer)
    : context_(context),
      channel_index_(channel),
      channel_(context.part.channels()[channel]),
      entries_(context.part.entries(channel_)),
      link_(context.shared.transport.link(peer)),
      pieces_max_(context.shared.transport.useful_pieces_max(peer)),
      cursor_(context.DestinationCursor(channel_.to)) {
  waiting_.reserve(context.shared.transport.lanes(peer) * ExecutorOptions::kLaneMessagesMax);
}

void ChannelReceiver::Rewind() {
  opening_taken_ = opened_ = failed_ = false;
  stall_.OnProgress();
}

void ChannelReceiver::OnMessage(std::unique_ptr<IncomingMessage> message) {
  const MessageHeader& header = message->header();
  if (failed_) return CountDropped();
  if (!FitsPlan(header)) {
    return Fail(absl::InternalError(absl::StrCat(
        PeerText(), " sent a message of kind ", header.kind, " and ", header.payload_bytes,
        " bytes as number ", header.sequence, ", which its plan has no place for")));
  }
  if (KindOf(header) == MessageKind::kOpening) {
    if (std::exchange(opening_taken_, true)) return CountDropped();
    return ReceiveSmall(*message, 0);
  }
  const Place place = *PlaceOf(header.sequence);
  if (KindOf(header) == MessageKind::kChunk) return OnChunkMessage(std::move(message), place);
  OnEndMessage(*message, place.entry);
}

// Sizes and places come from the plan alone: what a message says of itself is only compared with
// it.
bool ChannelReceiver::FitsPlan(const MessageHeader& header) const {
  const MessageKind kind = KindOf(header);
  const int64_t bytes = static_cast<int64_t>(header.payload_bytes);
  if (kind == MessageKind::kOpening) {
    return header.sequence == 0 && bytes == sizeof(OpeningPayload);
  }
  const std::optional<Place> place = PlaceOf(header.sequence);
  if (!place.has_value()) return false;
  const bool rest = place->entry == channel_.entry_count;
  const PreparedPart::Node* node =
      rest ? nullptr : &context_.part.nodes()[entries_[place->entry].to_node];
  const bool end = rest || place->chunk == node->chunks;
  switch (kind) {
    case MessageKind::kChunk:
      return !end && bytes == context_.part.ChunkOf(*node, place->chunk).bytes();
    case MessageKind::kChecksum:
      return end && !rest && context_.spec.checksums && bytes == sizeof(uint64_t);
    case MessageKind::kFailed:
      return end && bytes >= 1 && bytes <= int64_t{kFailureBytesMax};
    case MessageKind::kOpening:
    case MessageKind::kProbe:
    case MessageKind::kAlive:
    case MessageKind::kReady:
    case MessageKind::kStopped:
      break;
  }
  return false;
}

std::optional<ChannelReceiver::Place> ChannelReceiver::PlaceOf(uint64_t sequence) const {
  if (sequence == 0 || sequence > static_cast<uint64_t>(channel_.end_sequence)) return std::nullopt;
  const int64_t number = static_cast<int64_t>(sequence);
  if (number == channel_.end_sequence) return Place{.entry = channel_.entry_count};
  // Entries ascend by their first number: the last one that begins at or before `number` has it.
  const auto after = std::upper_bound(
      entries_.begin(), entries_.end(), number,
      [](int64_t value, const PreparedPart::Entry& entry) { return value < entry.first_sequence; });
  const auto entry = after - entries_.begin() - 1;
  return Place{.entry = static_cast<int32_t>(entry),
               .chunk = number - entries_[entry].first_sequence};
}

void ChannelReceiver::OnChunkMessage(std::unique_ptr<IncomingMessage> message, const Place& place) {
  if (!context_.progress.TakeChunk(
          {.node = entries_[place.entry].to_node, .chunk = static_cast<int32_t>(place.chunk)})) {
    return CountDropped();
  }
  if (!waiting_.empty() || !ReceiveChunk(*message)) waiting_.push_back(std::move(message));
}

bool ChannelReceiver::ReceiveChunk(IncomingMessage& message) {
  const Place place = *PlaceOf(message.header().sequence);
  const PreparedPart::Node& node = context_.part.nodes()[entries_[place.entry].to_node];
  const TileCursor::Range range = RangeOf(context_.part, node, place.chunk);
  const Ticket ticket = context_.AddTransfer({.kind = MessageKind::kChunk,
                                              .channel = channel_index_,
                                              .entry = place.entry,
                                              .chunk = static_cast<int32_t>(place.chunk),
                                              .bytes = range.bytes});
  Transfer& transfer = context_.shared.transfers.at(ticket);
  if (!cursor_.FindPieces(range, pieces_max_, transfer.pieces)) {
    const auto staging = context_.shared.receive_staging.Allocate(range.bytes, *this);
    if (!staging.has_value()) {
      context_.RemoveTransfer(ticket);
      return false;
    }
    transfer.UseStaging(*staging);
  }
  ++open_;
  message.Receive(transfer.pieces, ticket);
  return true;
}

void ChannelReceiver::OnEndMessage(IncomingMessage& message, int32_t entry) {
  if (entry < channel_.entry_count && !context_.progress.TakeEnd(entries_[entry].to_node)) {
    return CountDropped();
  }
  ReceiveSmall(message, entry);
}

void ChannelReceiver::ReceiveSmall(IncomingMessage& message, int32_t entry) {
  const Ticket ticket =
      context_.AddTransfer({.kind = KindOf(message.header()),
                            .channel = channel_index_,
                            .entry = entry,
                            .bytes = static_cast<int64_t>(message.header().payload_bytes)});
  ++open_;
  Transfer& transfer = context_.shared.transfers.at(ticket);
  message.Receive(transfer.OnePiece(transfer.payload()), ticket);
}

void ChannelReceiver::OnReceived(Ticket ticket, const absl::Status& status) {
  Transfer& transfer = context_.shared.transfers.at(ticket);
  const TransferSubject subject = transfer.subject;
  --open_;
  stall_.OnProgress();
  if (!status.ok()) {
    Fail(absl::UnavailableError(absl::StrCat(PeerText(), ": ", status.message())));
  } else if (subject.kind == MessageKind::kChunk) {
    FinishChunk(subject);
  } else {
    FinishSmall(transfer);
  }
  context_.RemoveTransfer(ticket);
  // Last: the first that waits for staging begins its transfer from inside this call.
  if (!subject.staging.empty()) context_.shared.receive_staging.Release(subject.staging);
}

void ChannelReceiver::FinishChunk(const TransferSubject& subject) {
  context_.report.received_bytes += subject.bytes;
  context_.shared.counters.At(link_).received += subject.bytes;
  const NodeChunk at{.node = entries_[subject.entry].to_node, .chunk = subject.chunk};
  // The relay may have failed while the chunk was on its way.
  if (context_.progress.settled(at.node)) return;
  const PreparedPart::Node& node = context_.part.nodes()[at.node];
  const TileCursor::Range range = RangeOf(context_.part, node, subject.chunk);
  if (!subject.staging.empty()) {
    const PhaseTimer timer(context_.report.seconds.unpack);
    cursor_.Scatter(range, subject.staging);
  }
  if (context_.spec.checksums) {
    const PhaseTimer timer(context_.report.seconds.checksum);
    cursor_.HashLeaves(range, context_.shared.leaf_scratch, context_.progress.LeafHashes(at));
  }
  context_.progress.OnChunkInPlace(at);
}

void ChannelReceiver::FinishSmall(Transfer& transfer) {
  const TransferSubject& subject = transfer.subject;
  if (subject.kind == MessageKind::kOpening) return CheckOpening(transfer.payload());
  if (subject.kind == MessageKind::kChecksum) {
    uint64_t checksum = 0;
    std::memcpy(&checksum, transfer.small.data(), sizeof(checksum));
    return context_.progress.OnRootChecksum(entries_[subject.entry].to_node, checksum);
  }
  const absl::Status why = DecodeFailure(transfer.payload());
  if (subject.entry == channel_.entry_count) return Fail(why);
  context_.progress.FailNode(entries_[subject.entry].to_node, why);
}

void ChannelReceiver::CheckOpening(std::span<const std::byte> payload) {
  OpeningPayload found;
  std::memcpy(&found, payload.data(), sizeof(found));
  const OpeningPayload expected{.order = channel_.order,
                                .chunk_bytes = context_.part.chunk_bytes(),
                                .checksums = context_.spec.checksums ? 1 : 0};
  if (found != expected) {
    return Fail(absl::InternalError(absl::StrCat(PeerText(), " has another plan: expected ",
                                                 ToString(expected), "; found ", ToString(found))));
  }
  opened_ = true;
  context_.progress.OnItemDone(channel_.to, 0);
}

void ChannelReceiver::OnStagingFree() {
  while (!waiting_.empty()) {
    const Place place = *PlaceOf(waiting_.front()->header().sequence);
    const bool wanted = !context_.progress.settled(entries_[place.entry].to_node);
    if (wanted && !ReceiveChunk(*waiting_.front())) return;
    if (!wanted) CountDropped();
    waiting_.erase(waiting_.begin());
  }
}

void ChannelReceiver::Fail(const absl::Status& why) {
  failed_ = true;
  context_.shared.receive_staging.Forget(*this);
  waiting_.clear();
  for (const PreparedPart::Entry& entry : entries_) context_.progress.FailNode(entry.to_node, why);
  // The opening is an item of its own, which the device expects.
  if (!opened_) context_.progress.FailDevice(channel_.to, why);
}

std::optional<int32_t> ChannelReceiver::FirstOpenEntry() const {
  for (int32_t i = 0; i < channel_.entry_count; ++i) {
    if (!context_.progress.settled(entries_[i].to_node)) return i;
  }
  return std::nullopt;
}

std::string ChannelReceiver::Missing() const {
  const std::optional<int32_t> entry = FirstOpenEntry();
  if (!entry.has_value()) return opened_ ? "" : absl::StrCat("the opening from ", PeerText());
  const int32_t node_index = entries_[*entry].to_node;
  const PreparedPart::Node& node = context_.part.nodes()[node_index];
  return absl::StrCat(NameOf(context_.part, node), " from ", PeerText(), ": ",
                      context_.progress.chunks_in_place(node_index), " of ", node.chunks,
                      " chunks came");
}

std::string ChannelReceiver::PeerText() const {
  return absl::StrCat("worker ", context_.PeerName(channel_.from), ", ",
                      NameOf(context_.part, channel_));
}

}  // namespace crossmesh
