#include "worker/executor/channel_sender.h"

#include "worker/executor/leaf_checksum.h"
#include "worker/executor/wire_message.h"

#include <algorithm>
#include <cstring>

#include <absl/strings/str_cat.h>

namespace crossmesh {

ChannelSender::ChannelSender(TaskContext& context, int32_t channel, PeerId peer)
    : context_(context),
      channel_index_(channel),
      channel_(context.part.channels()[channel]),
      entries_(context.part.entries(channel_)),
      peer_(peer),
      link_(context.shared.transport.link(peer)),
      pieces_max_(context.shared.transport.useful_pieces_max(peer)),
      lanes_(context.shared.transport.lanes(peer)),
      source_(context.SourceCursor(channel_.from)),
      forwarded_(context.DestinationCursor(channel_.from)) {}

void ChannelSender::Pump() {
  while (!stopped_ && WindowOpen() && SendNext()) {
  }
}

bool ChannelSender::WindowOpen() const {
  const ExecutorOptions& options = context_.shared.options;
  return open_ < options.channel_messages_max(lanes_) &&
         open_bytes_ < lanes_ * options.channel_window * context_.part.chunk_bytes();
}

bool ChannelSender::SendNext() {
  if (!opened_) {
    SendOpening();
    return true;
  }
  if (entry_ == channel_.entry_count) return false;
  const int32_t node = entries_[entry_].from_node;
  if (const absl::Status& failure = context_.board.failure(node); !failure.ok()) {
    SendFailure(failure, entry_, EndSequence());
    NextEntry();
    return true;
  }
  return chunk_ < context_.part.nodes()[node].chunks ? SendChunk(node) : SendEnd(node);
}

void ChannelSender::SendOpening() {
  opened_ = true;
  const OpeningPayload opening{.order = channel_.order,
                               .chunk_bytes = context_.part.chunk_bytes(),
                               .checksums = context_.spec.checksums ? 1 : 0};
  const Ticket ticket = context_.AddTransfer(
      {.kind = MessageKind::kOpening, .channel = channel_index_, .bytes = sizeof(opening)});
  Transfer& transfer = context_.shared.transfers.at(ticket);
  std::memcpy(transfer.small.data(), &opening, sizeof(opening));
  ++open_;
  context_.shared.transport.Send(peer_, context_.HeaderFor(channel_, MessageKind::kOpening, 0),
                                 transfer.OnePiece(transfer.payload()), ticket);
}

bool ChannelSender::SendChunk(int32_t node) {
  const PreparedPart::Entry& entry = entries_[entry_];
  if (!context_.board.CanSend(node, chunk_, entry.lag)) return false;
  const PreparedPart::Node& relay = context_.part.nodes()[node];
  const TileCursor::Range range = RangeOf(context_.part, relay, chunk_);
  TileCursor& cursor = relay.root ? source_ : forwarded_;

  const Ticket ticket = context_.AddTransfer({.kind = MessageKind::kChunk,
                                              .channel = channel_index_,
                                              .entry = entry_,
                                              .chunk = chunk_,
                                              .bytes = range.bytes});
  Transfer& transfer = context_.shared.transfers.at(ticket);
  if (!cursor.FindPieces(range, pieces_max_, transfer.pieces) && !Stage(cursor, range, transfer)) {
    context_.RemoveTransfer(ticket);
    return false;
  }
  ++open_;
  open_bytes_ += range.bytes;
  context_.shared.transport.Send(
      peer_, context_.HeaderFor(channel_, MessageKind::kChunk, entry.first_sequence + chunk_),
      transfer.pieces, ticket);
  // Hashed while it is on its way.
  if (context_.board.WantsRootHash(node, chunk_)) HashRootChunk(node, range, transfer);
  ++chunk_;
  return true;
}

bool ChannelSender::Stage(TileCursor& cursor, const TileCursor::Range& range, Transfer& transfer) {
  const auto staging = context_.shared.send_staging.Allocate(range.bytes, *this);
  if (!staging.has_value()) return false;
  transfer.UseStaging(*staging);
  const PhaseTimer timer(context_.report.seconds.pack);
  cursor.Gather(range, *staging);
  return true;
}

void ChannelSender::HashRootChunk(int32_t node, const TileCursor::Range& range,
                                  const Transfer& transfer) {
  const PhaseTimer timer(context_.report.seconds.checksum);
  const std::span<uint64_t> hashes = context_.board.LeafHashes(node, chunk_);
  if (transfer.subject.staging.empty()) {
    source_.HashLeaves(range, context_.shared.leaf_scratch, hashes);
  } else {
    HashLeaves(transfer.subject.staging, hashes);
  }
  context_.board.OnRootHashed(node, chunk_);
}

bool ChannelSender::SendEnd(int32_t node) {
  if (!context_.spec.checksums) {
    NextEntry();
    return true;
  }
  const std::optional<uint64_t> checksum = context_.board.RootChecksum(node);
  if (!checksum.has_value()) return false;
  const Ticket ticket = context_.AddTransfer({.kind = MessageKind::kChecksum,
                                              .channel = channel_index_,
                                              .entry = entry_,
                                              .bytes = sizeof(*checksum)});
  Transfer& transfer = context_.shared.transfers.at(ticket);
  std::memcpy(transfer.small.data(), &*checksum, sizeof(*checksum));
  ++open_;
  context_.shared.transport.Send(
      peer_, context_.HeaderFor(channel_, MessageKind::kChecksum, EndSequence()),
      transfer.OnePiece(transfer.payload()), ticket);
  NextEntry();
  return true;
}

void ChannelSender::SendFailure(const absl::Status& why, int32_t entry, uint64_t sequence) {
  const Ticket ticket = context_.AddTransfer(
      {.kind = MessageKind::kFailed, .channel = channel_index_, .entry = entry});
  Transfer& transfer = context_.shared.transfers.at(ticket);
  transfer.subject.bytes = static_cast<int64_t>(EncodeFailure(why, transfer.small));
  ++open_;
  context_.shared.transport.Send(peer_,
                                 context_.HeaderFor(channel_, MessageKind::kFailed, sequence),
                                 transfer.OnePiece(transfer.payload()), ticket);
}

void ChannelSender::OnSent(Ticket ticket, const absl::Status& status) {
  const TransferSubject subject = context_.shared.transfers.at(ticket).subject;
  context_.RemoveTransfer(ticket);
  --open_;
  if (subject.kind == MessageKind::kChunk) open_bytes_ -= subject.bytes;
  stall_.OnProgress();
  if (status.ok() && subject.kind == MessageKind::kChunk) {
    context_.report.sent_bytes += subject.bytes;
    context_.shared.counters.At(link_).sent += subject.bytes;
  }
  if (!subject.staging.empty()) context_.shared.send_staging.Release(subject.staging);
  Pump();
}

void ChannelSender::Close(const absl::Status& why) {
  if (stopped_ || entry_ == channel_.entry_count) return;
  SendFailure(why, channel_.entry_count, channel_.end_sequence);
  Drop();
}

void ChannelSender::Drop() {
  stopped_ = true;
  context_.shared.send_staging.Forget(*this);
}

void ChannelSender::NextEntry() {
  ++entry_;
  chunk_ = 0;
}

uint64_t ChannelSender::EndSequence() const {
  const PreparedPart::Entry& entry = entries_[entry_];
  return entry.first_sequence + context_.part.nodes()[entry.from_node].chunks;
}

}  // namespace crossmesh
