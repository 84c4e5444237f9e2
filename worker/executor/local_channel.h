#pragma once

#include "worker/executor/due_queue.h"
#include "worker/executor/prepared_part.h"
#include "worker/executor/task_context.h"
#include "worker/executor/tile_cursor.h"

#include <cstdint>
#include <span>

namespace crossmesh {

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

// A class that a device both holds and needs: from its source tiles to its destination tiles.
// Not hashed. Confined to the loop.
class DeviceCopy {
 public:
  // All must outlive the copy.
  DeviceCopy(TaskContext& context, const PreparedPart::Copy& copy);

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

}  // namespace crossmesh
