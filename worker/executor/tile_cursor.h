#pragma once

#include "common/numbers/element_converter.h"
#include "common/plan/packed_runs.h"
#include "worker/executor/task.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sys/uio.h>

namespace crossmesh {

// Packed bytes of classes in the memory of one device's tiles, by ranges [offset, offset + bytes).
// Where a class is converted, source tiles hold its elements as they were before: whatever reads
// them converts.
//
// Every kind of call keeps its own places in the classes, because it costs little to go on from
// there and much to go back: a range is looked at, moved and hashed at different times.
// Thread-compatible.
class TileCursor {
 public:
  struct Range {
    ClassIndex slice_class = kNoClass;
    int64_t offset = 0;
    int64_t bytes = 0;
  };

  // Both must outlive the cursor.
  TileCursor(const TileMap& map, const BoundTiles& tiles)
      : map_(map), tiles_(tiles), look_(map), move_(map), hash_(map) {}

  // Where the range is in memory. False when it is not there as it is sent, is in more pieces than
  // `pieces_max`, or begins with pieces so small that looking on is not worth while.
  bool FindPieces(const Range& range, int pieces_max, std::vector<iovec>& pieces);
  // `into` and `from` have the size of the range.
  void Gather(const Range& range, std::span<std::byte> into);
  void Scatter(const Range& range, std::span<const std::byte> from);
  enum class NextUse : uint8_t { kSoon, kLater };
  // Copies the range to the same range in other tiles, without staging. Returns the bytes that were
  // copied: those whose place is the same memory on both sides are left alone. `next_use` of the
  // copy: kSoon keeps it in the processor's caches.
  int64_t CopyTo(TileCursor& to, const Range& range, NextUse next_use);
  // Hashes the range leaf by leaf; `scratch` holds a leaf.
  void HashLeaves(const Range& range, std::span<std::byte> scratch, std::span<uint64_t> hashes);

 private:
  static PackedRuns& Seek(PackedRuns& runs, const Range& range);
  std::byte* At(const Run& run) const { return tiles_.tensor[run.tensor] + run.tile_offset; }
  // Null where the class's elements are in the tiles as they are packed.
  ElementConverter ConverterOf(ClassIndex slice_class) const;

  const TileMap& map_;
  const BoundTiles& tiles_;
  PackedRuns look_;
  PackedRuns move_;
  PackedRuns hash_;
};

}  // namespace crossmesh
