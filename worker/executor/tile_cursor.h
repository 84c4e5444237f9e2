#pragma once

#include "common/plan/packed_segments.h"
#include "worker/executor/task.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sys/uio.h>

namespace crossmesh {

class DeviceScales;

// Packed bytes of classes in the memory of one device's tiles, by ranges [offset, offset + bytes).
// Where a class is converted, source tiles hold its elements as they were before: reading them
// converts them.
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

  // All must outlive the cursor.
  TileCursor(const TileMap& map, const BoundTiles& tiles) : TileCursor(map, tiles, nullptr) {}
  // Of source tiles of which some have scales.
  TileCursor(const TileMap& map, const DeviceScales& scales);

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
  // What becomes of a class's elements when they are read.
  struct Reader;

  TileCursor(const TileMap& map, const BoundTiles& tiles, const DeviceScales* scales)
      : map_(map), tiles_(tiles), scales_(scales), look_(map), move_(map), hash_(map) {}

  // The next segment, while the one after it is fetched into the processor's caches.
  Segment NextToRead(PackedSegments& segments, int64_t bytes_max) const;
  static PackedSegments& Seek(PackedSegments& segments, const Range& range);
  std::byte* At(const Segment& segment) const {
    return tiles_.tensor[segment.tensor] + segment.tile_offset;
  }
  Reader ReaderOf(ClassIndex slice_class) const;
  // Reads the next segments into other memory; returns the bytes that were not there already.
  int64_t Fill(std::span<std::byte> into, PackedSegments& segments, const Reader& reader,
               NextUse next_use) const;
  void Read(const Reader& reader, const Segment& segment, std::byte* to) const;

  const TileMap& map_;
  const BoundTiles& tiles_;
  const DeviceScales* const scales_;
  PackedSegments look_;
  PackedSegments move_;
  PackedSegments hash_;
};

}  // namespace crossmesh
