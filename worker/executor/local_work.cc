#include "worker/executor/local_work.h"

#include "worker/executor/due_queue.h"
#include "worker/executor/phase_timer.h"
#include "worker/executor/source_scales.h"
#include "worker/executor/task_context.h"
#include "worker/executor/tile_cursor.h"

#include <algorithm>
#include <optional>
#include <span>

namespace crossmesh {
namespace {

// Work between two looks at the transport.
constexpr int64_t kStepBytes = int64_t{1} << 20;
constexpr int kStepActionsMax = 64;

constexpr int64_t kNothingToDo = -1;

void CountCopied(TaskContext& context, int64_t bytes) {
  context.report.copied_bytes += bytes;
  context.shared.counters.copied_bytes += bytes;
}

}  // namespace

// A channel between two devices of this worker: copies from tiles to tiles, chunk by chunk, with
// checksums like any other hop. Confined to the loop.
class LocalChannel {
 public:
  // All must outlive the channel.
  LocalChannel(TaskContext& context, int32_t channel);

  void Rewind() { queue_.Rewind(); }
  // Does the next thing, at most one chunk. Returns its bytes, or -1 when it must wait or is done.
  int64_t Step();
  // Something has come of the relay of an entry, or of its end.
  void OnProgress(int32_t entry) { queue_.Wake(entry); }

 private:
  // Returns its bytes.
  int64_t CopyChunk(const PreparedPart::Entry& entry);

  TaskContext& context_;
  const std::span<const PreparedPart::Entry> entries_;
  TileCursor source_;       // of the device where the channel begins
  TileCursor forwarded_;    // what it received itself
  TileCursor destination_;  // of the device where the channel ends
  DueQueue queue_;
};

// A class that a device both holds and needs: from its source tiles to its destination tiles, if
// the task does not leave it where it is. Not hashed. Confined to the loop.
class ClassCopy {
 public:
  // All must outlive the copy.
  ClassCopy(TaskContext& context, const PreparedPart::Copy& copy);

  void Rewind();
  // As LocalChannel::Step.
  int64_t Step();
  bool finished() const { return finished_; }

 private:
  TaskContext& context_;
  const PreparedPart::Copy copy_;
  const int64_t bytes_;
  TileCursor source_;
  TileCursor destination_;
  int64_t offset_ = 0;
  bool finished_ = false;
};

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
  // What a channel to another worker tells by a message is known here at once.
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

ClassCopy::ClassCopy(TaskContext& context, const PreparedPart::Copy& copy)
    : context_(context),
      copy_(copy),
      bytes_(context.part.slicing().classes()[copy.slice_class].bytes),
      source_(context.SourceCursor(copy.device)),
      destination_(context.DestinationCursor(copy.device)) {}

void ClassCopy::Rewind() {
  offset_ = 0;
  finished_ = false;
}

int64_t ClassCopy::Step() {
  if (finished_) return kNothingToDo;
  // Of a device that has failed nothing more is copied.
  if (context_.progress.device_settled(copy_.device)) {
    finished_ = true;
    return 0;
  }
  if (!context_.progress.is_source_ready(copy_.device)) return kNothingToDo;
  if (context_.spec.leaves_own) {
    finished_ = true;
    context_.progress.OnItemDone(copy_.device, bytes_);
    return 0;
  }
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

LocalWork::LocalWork(TaskContext& context, SourceScales& scales)
    : context_(context), scales_(scales), by_channel_(context.part.channels().size()) {
  for (int32_t i = 0; i < std::ssize(by_channel_); ++i) {
    if (context.part.channels()[i].reach != PreparedPart::Reach::kLocal) continue;
    channels_.push_back(std::make_unique<LocalChannel>(context, i));
    by_channel_[i] = channels_.back().get();
  }
  for (const PreparedPart::Copy& copy : context.part.copies()) copies_.emplace_back(context, copy);
}

LocalWork::~LocalWork() = default;

void LocalWork::Rewind() {
  for (const auto& channel : channels_) channel->Rewind();
  for (ClassCopy& copy : copies_) copy.Rewind();
}

void LocalWork::OnProgress(const PreparedPart::Out& out) {
  by_channel_[out.channel]->OnProgress(out.entry);
}

bool LocalWork::Step() {
  if (scales_.idle()) return Copy();
  ComputeScales();
  return true;
}

void LocalWork::ComputeScales() {
  const PhaseTimer timer(context_.report.seconds.pack);
  for (int64_t bytes = 0; bytes < kStepBytes && !scales_.idle();) {
    const SourceScales::Progress progress = scales_.Step();
    bytes += progress.read_bytes;
    if (progress.done.has_value()) context_.progress.OnSourceReady(*progress.done);
  }
}

bool LocalWork::Copy() {
  const size_t count = channels_.size() + copies_.size();
  int64_t bytes = 0;
  size_t idle = 0;  // in a row; when all are, there is nothing to do
  for (int actions = 0; idle < count; ++actions) {
    if (bytes >= kStepBytes || actions == kStepActionsMax) return true;
    // From where the last step stopped, so that each has its turn.
    const size_t i = next_++ % count;
    const int64_t moved =
        i < channels_.size() ? channels_[i]->Step() : copies_[i - channels_.size()].Step();
    if (moved < 0) {
      ++idle;
    } else {
      bytes += moved;
      idle = 0;
    }
  }
  return false;
}

bool LocalWork::finished() const { return std::ranges::all_of(copies_, &ClassCopy::finished); }

}  // namespace crossmesh
