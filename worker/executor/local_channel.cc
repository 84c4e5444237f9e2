#include "worker/executor/local_channel.h"

#include "worker/executor/phase_timer.h"

#include <algorithm>

namespace crossmesh {
namespace {

constexpr int64_t kNothingToDo = -1;

void CountCopied(TaskContext& context, int64_t bytes) {
  context.report.copied_bytes += bytes;
  context.shared.counters.copied_bytes += bytes;
}

}  // namespace

LocalChannel::LocalChannel(TaskContext& context, int32_t channel)
    : context_(context),
      entries_(context.part.entries(context.part.channels()[channel])),
      source_(context.SourceCursor(context.part.channels()[channel].from)),
      forwarded_(context.DestinationCursor(context.part.channels()[channel].from)),
      destination_(context.DestinationCursor(context.part.channels()[channel].to)),
      queue_(context.part, context.part.channels()[channel]) {}

int64_t LocalChannel::Step() {
  if (queue_.idle()) return kNothingToDo;
  const PreparedPart::Entry& entry = entries_[queue_.entry()];
  RelayProgress& progress = context_.progress;
  if (const absl::Status& failure = progress.failure(entry.from_node); !failure.ok()) {
    progress.FailNode(entry.to_node, failure);
  }
  if (progress.settled(entry.to_node)) {
    queue_.EndEntry();
    return 0;
  }
  if (queue_.chunk() < context_.part.nodes()[entry.to_node].chunks) {
    if (progress.CanSend({.node = entry.from_node, .chunk = queue_.chunk()}, entry.lag)) {
      return CopyChunk(entry);
    }
    queue_.Sleep();
    return 0;
  }
  if (const std::optional<uint64_t> checksum = progress.RootChecksum(entry.from_node)) {
    queue_.Advance();
    progress.OnRootChecksum(entry.to_node, *checksum);
  } else {
    queue_.Sleep();
  }
  return 0;
}

int64_t LocalChannel::CopyChunk(const PreparedPart::Entry& entry) {
  const NodeChunk from{.node = entry.from_node, .chunk = queue_.chunk()};
  const NodeChunk to{.node = entry.to_node, .chunk = queue_.chunk()};
  queue_.Advance();
  const PreparedPart::Node& node = context_.part.nodes()[to.node];
  const TileCursor::Range range = RangeOf(context_.part, node, to.chunk);
  context_.OnChunkBegun();
  const bool root = context_.part.nodes()[from.node].root;
  {
    const PhaseTimer timer(context_.report.seconds.unpack);
    // The copy is hashed right after this, or not at all.
    const auto next_use =
        context_.spec.checksums ? TileCursor::NextUse::kSoon : TileCursor::NextUse::kLater;
    CountCopied(context_, (root ? source_ : forwarded_).CopyTo(destination_, range, next_use));
  }
  RelayProgress& progress = context_.progress;
  if (context_.spec.checksums) {
    const PhaseTimer timer(context_.report.seconds.checksum);
    if (progress.WantsRootHash(from)) {
      source_.HashLeaves(range, context_.shared.leaf_scratch, progress.LeafHashes(from));
      progress.OnRootHashed(from);
    }
    destination_.HashLeaves(range, context_.shared.leaf_scratch, progress.LeafHashes(to));
  }
  progress.OnChunkInPlace(to);
  return range.bytes;
}

DeviceCopy::DeviceCopy(TaskContext& context, const PreparedPart::Copy& copy)
    : context_(context),
      copy_(copy),
      bytes_(context.part.slicing().classes()[copy.slice_class].bytes),
      source_(context.SourceCursor(copy.device)),
      destination_(context.DestinationCursor(copy.device)) {}

void DeviceCopy::Rewind() {
  offset_ = 0;
  finished_ = false;
}

int64_t DeviceCopy::Step() {
  if (finished_) return kNothingToDo;
  if (context_.progress.device_settled(copy_.device)) {
    finished_ = true;
    return 0;
  }
  if (!context_.progress.is_source_ready(copy_.device)) return kNothingToDo;
  const int64_t bytes = std::min(context_.part.chunk_bytes(), bytes_ - offset_);
  {
    const PhaseTimer timer(context_.report.seconds.unpack);
    CountCopied(context_, source_.CopyTo(
                              destination_,
                              {.slice_class = copy_.slice_class, .offset = offset_, .bytes = bytes},
                              TileCursor::NextUse::kLater));
  }
  offset_ += bytes;
  if (offset_ == bytes_) {
    finished_ = true;
    context_.progress.OnItemDone(copy_.device, bytes_);
  }
  return bytes;
}

}  // namespace crossmesh
