#include "worker/executor/channel_sender.h"

#include "worker/executor/leaf_checksum.h"
#include "worker/executor/phase_timer.h"
#include "worker/executor/wire_message.h"

#include <algorithm>
#include <cstring>

#include <absl/strings/str_cat.h>

namespace crossmesh {

ChannelSender::ChannelSender(TaskContext& context, int32_t channel, SendWindow& window,
                             StagingWaiter& waiter)
    : context_(context),
      channel_index_(channel),
      channel_(context.part.channels()[channel]),
      entries_(context.part.entries(channel_)),
      window_(window),
      waiter_(waiter),
      link_(context.shared.transport.link(window.peer())),
      pieces_max_(context.shared.transport.useful_pieces_max(window.peer())),
      source_(context.SourceCursor(channel_.from)),
      forwarded_(context.DestinationCursor(channel_.from)),
      receiver_ready_(!context.spec.receivers_say_ready),
      queue_(context.part, channel_) {}

int64_t ChannelSender::planned_bytes() const {
  int64_t bytes = 0;
  for (int32_t entry = 0; entry < channel_.entry_count; ++entry) bytes += NodeOf(entry).bytes();
  return bytes;
}

void ChannelSender::Rewind() {
  receiver_ready_ = !context_.spec.receivers_say_ready;
  opened_ = stopped_ = waits_for_staging_ = false;
  queue_.Rewind();
  stall_.OnProgress();
}

void ChannelSender::SendNext() {
  if (!opened_) return SendOpening();
  const PreparedPart::Entry& entry = entries_[queue_.entry()];
  const int32_t node = entry.from_node;
  if (const absl::Status& failure = context_.progress.failure(node); !failure.ok()) {
    SendFailure(failure, queue_.entry(), EndSequence(queue_.entry()));
    queue_.EndEntry();
  } else if (queue_.chunk() == context_.part.nodes()[node].chunks) {
    SendEnd(node);
  } else if (context_.progress.CanSend({.node = node, .chunk = queue_.chunk()}, entry.lag)) {
    SendChunk(node);
  } else {
    queue_.Sleep();
  }
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
  Send(ticket, 0, transfer.OnePiece(transfer.payload()));
}

void ChannelSender::SendChunk(int32_t node) {
  const int32_t entry = queue_.entry(), chunk = queue_.chunk();
  const PreparedPart::Node& relay = context_.part.nodes()[node];
  const TileCursor::Range range = RangeOf(context_.part, relay, chunk);
  TileCursor& cursor = relay.root ? source_ : forwarded_;
  context_.OnChunkBegun();

  // First, since the transfer holds the list of pieces until the message has been taken.
  const Ticket ticket = context_.AddTransfer({.kind = MessageKind::kChunk,
                                              .channel = channel_index_,
                                              .entry = entry,
                                              .chunk = chunk,
                                              .bytes = range.bytes});
  Transfer& transfer = context_.shared.transfers.at(ticket);
  if (!cursor.FindPieces(range, pieces_max_, transfer.pieces) && !Stage(cursor, range, transfer)) {
    context_.RemoveTransfer(ticket);
    waits_for_staging_ = true;
    return;
  }
  queue_.Advance();
  Send(ticket, entries_[entry].first_sequence + chunk, transfer.pieces);
  // Hashed while it is on its way.
  const NodeChunk sent{.node = node, .chunk = chunk};
  if (context_.progress.WantsRootHash(sent)) HashRootChunk(sent, range, transfer);
}

bool ChannelSender::Stage(TileCursor& cursor, const TileCursor::Range& range, Transfer& transfer) {
  const auto staging = context_.shared.send_staging.Allocate(range.bytes, waiter_);
  if (!staging.has_value()) return false;
  transfer.UseStaging(*staging);
  const PhaseTimer timer(context_.report.seconds.pack);
  cursor.Gather(range, *staging);
  return true;
}

void ChannelSender::HashRootChunk(NodeChunk root, const TileCursor::Range& range,
                                  const Transfer& transfer) {
  const PhaseTimer timer(context_.report.seconds.checksum);
  const std::span<uint64_t> hashes = context_.progress.LeafHashes(root);
  if (transfer.subject.staging.empty()) {
    source_.HashLeaves(range, context_.shared.leaf_scratch, hashes);
  } else {
    HashLeaves(transfer.subject.staging, hashes);
  }
  context_.progress.OnRootHashed(root);
}

void ChannelSender::SendEnd(int32_t node) {
  const int32_t entry = queue_.entry();
  if (!context_.spec.checksums) return queue_.Advance();
  const std::optional<uint64_t> checksum = context_.progress.RootChecksum(node);
  if (!checksum.has_value()) return queue_.Sleep();
  queue_.Advance();
  const Ticket ticket = context_.AddTransfer({.kind = MessageKind::kChecksum,
                                              .channel = channel_index_,
                                              .entry = entry,
                                              .bytes = sizeof(*checksum)});
  Transfer& transfer = context_.shared.transfers.at(ticket);
  std::memcpy(transfer.small.data(), &*checksum, sizeof(*checksum));
  Send(ticket, EndSequence(entry), transfer.OnePiece(transfer.payload()));
}

void ChannelSender::SendFailure(const absl::Status& why, int32_t entry, uint64_t sequence) {
  const Ticket ticket = context_.AddTransfer(
      {.kind = MessageKind::kFailed, .channel = channel_index_, .entry = entry});
  Transfer& transfer = context_.shared.transfers.at(ticket);
  transfer.subject.bytes = static_cast<int64_t>(EncodeFailure(why, transfer.small));
  Send(ticket, sequence, transfer.OnePiece(transfer.payload()));
}

void ChannelSender::Send(Ticket ticket, uint64_t sequence, Pieces payload) {
  const TransferSubject& subject = context_.shared.transfers.at(ticket).subject;
  ++open_;
  window_.OnSend(subject.chunk_bytes());
  context_.shared.transport.Send(
      window_.peer(), context_.HeaderFor(channel_, subject.kind, sequence), payload, ticket);
}

void ChannelSender::OnSent(Ticket ticket, const absl::Status& status) {
  // A copy, which outlives the transfer.
  const TransferSubject subject = context_.shared.transfers.at(ticket).subject;
  context_.RemoveTransfer(ticket);
  --open_;
  window_.OnTaken(subject.chunk_bytes());
  stall_.OnProgress();
  if (status.ok() && subject.kind == MessageKind::kChunk) {
    context_.report.sent_bytes += subject.bytes;
    context_.shared.counters.At(link_).sent += subject.bytes;
  }
  if (!subject.staging.empty()) context_.shared.send_staging.Release(subject.staging);
}

void ChannelSender::Close(const absl::Status& why) {
  if (stopped_ || queue_.finished()) return;
  // A receiver that has not said that it is there expects nothing.
  if (receiver_ready_) SendFailure(why, channel_.entry_count, channel_.end_sequence);
  Drop();
}

void ChannelSender::Drop() {
  stopped_ = true;
  context_.shared.send_staging.Forget(waiter_);
}

uint64_t ChannelSender::EndSequence(int32_t entry) const {
  return entries_[entry].first_sequence + NodeOf(entry).chunks;
}

}  // namespace crossmesh
