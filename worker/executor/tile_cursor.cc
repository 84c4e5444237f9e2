#include "worker/executor/tile_cursor.h"

#include "common/base/check.h"
#include "common/base/row_fetch.h"
#include "common/base/streaming_copy.h"
#include "common/numbers/element_converter.h"
#include "common/plan/plan.h"
#include "worker/executor/leaf_checksum.h"
#include "worker/executor/source_scales.h"
#include "worker/transport/pieces.h"

#include <algorithm>
#include <cstring>

namespace crossmesh {
namespace {

// A range that begins with so many pieces, twice as small as they may be on average, is taken to be
// in too many.
constexpr int kBeginningPieces = 64;

}  // namespace

struct TileCursor::Reader {
  ElementConverter converter = nullptr;
  const DeviceScales* scales = nullptr;

  bool copies() const { return converter == nullptr && scales == nullptr; }
};

TileCursor::TileCursor(const TileMap& map, const DeviceScales& scales)
    : TileCursor(map, scales.tiles(), &scales) {}

TileCursor::Reader TileCursor::ReaderOf(ClassIndex slice_class) const {
  const ConversionIndex index = map_.slicing().classes()[slice_class].conversion;
  if (map_.side() == Side::kDestination || index == kNoConversion) return {};
  const Conversion& conversion = map_.tensors().conversions()[index];
  if (conversion.to == DataType::kF8E4M3) {
    CHECK(scales_ != nullptr) << "class " << slice_class << " is read where no scales are computed";
    return {.scales = scales_};
  }
  return {.converter = ConverterFor(conversion)};
}

void TileCursor::Read(const Reader& reader, const Segment& segment, std::byte* to) const {
  if (reader.converter != nullptr) {
    reader.converter(At(segment), to, segment.bytes);
  } else if (reader.scales != nullptr) {
    reader.scales->Quantize(segment, to);
  } else {
    std::memcpy(to, At(segment), segment.bytes);
  }
}

PackedSegments& TileCursor::Seek(PackedSegments& segments, const Range& range) {
  segments.Seek(range.slice_class, range.offset);
  return segments;
}

Segment TileCursor::NextToRead(PackedSegments& segments, int64_t bytes_max) const {
  const Segment segment = segments.Next(bytes_max);
  FetchRow(At(segments.Next(0)), segment.bytes);
  return segment;
}

bool TileCursor::FindPieces(const Range& range, int pieces_max, std::vector<iovec>& pieces) {
  if (!ReaderOf(range.slice_class).copies()) return false;
  // To look at all pieces in vain costs a good part of what gathering them costs.
  const int64_t beginning_bytes_min = range.bytes * kBeginningPieces / pieces_max / 2;
  PackedSegments& segments = Seek(look_, range);
  pieces.clear();
  std::byte* end = nullptr;  // of the last piece
  for (int64_t left = range.bytes; left > 0;) {
    const Segment segment = segments.Next(left);
    std::byte* const begin = At(segment);
    // Runs end with a cell or a tile even where memory goes on.
    if (begin == end) {
      pieces.back().iov_len += segment.bytes;
    } else {
      const int64_t found_bytes = range.bytes - left;
      if (std::ssize(pieces) == pieces_max) return false;
      if (std::ssize(pieces) == kBeginningPieces && found_bytes < beginning_bytes_min) return false;
      pieces.push_back(PieceOf(std::span(begin, segment.bytes)));
    }
    end = begin + segment.bytes;
    left -= segment.bytes;
  }
  return true;
}

void TileCursor::Gather(const Range& range, std::span<std::byte> into) {
  const Reader reader = ReaderOf(range.slice_class);
  PackedSegments& segments = Seek(move_, range);
  while (!into.empty()) {
    const Segment segment = NextToRead(segments, std::ssize(into));
    Read(reader, segment, into.data());
    into = into.subspan(segment.bytes);
  }
}

void TileCursor::Scatter(const Range& range, std::span<const std::byte> from) {
  PackedSegments& segments = Seek(move_, range);
  while (!from.empty()) {
    const Segment segment = segments.Next(std::ssize(from));
    std::memcpy(At(segment), from.data(), segment.bytes);
    from = from.subspan(segment.bytes);
  }
}

int64_t TileCursor::CopyTo(TileCursor& to, const Range& range, NextUse next_use) {
  const Reader reader = ReaderOf(range.slice_class);
  PackedSegments& from_segments = Seek(move_, range);
  PackedSegments& to_segments = to.Seek(to.move_, range);
  int64_t copied = 0;
  for (int64_t left = range.bytes; left > 0;) {
    const Segment destination = to_segments.Next(left);
    left -= destination.bytes;
    copied += Fill({to.At(destination), static_cast<size_t>(destination.bytes)}, from_segments,
                   reader, next_use);
  }
  if (next_use == NextUse::kLater) FinishStreaming();
  return copied;
}

int64_t TileCursor::Fill(std::span<std::byte> into, PackedSegments& segments, const Reader& reader,
                         NextUse next_use) const {
  int64_t copied = 0;
  while (!into.empty()) {
    const Segment segment = NextToRead(segments, std::ssize(into));
    if (At(segment) != into.data()) {
      // Streaming would take out of the caches what is read again right after this.
      if (!reader.copies() || next_use == NextUse::kSoon) {
        Read(reader, segment, into.data());
      } else {
        CopyStreaming(into.data(), At(segment), segment.bytes);
      }
      copied += segment.bytes;
    }
    into = into.subspan(segment.bytes);
  }
  return copied;
}

void TileCursor::HashLeaves(const Range& range, std::span<std::byte> scratch,
                            std::span<uint64_t> hashes) {
  const Reader reader = ReaderOf(range.slice_class);
  PackedSegments& segments = Seek(hash_, range);
  int64_t left = range.bytes;
  for (uint64_t& hash : hashes) {
    const int64_t leaf_bytes = std::min(left, Plan::kLeafBytes);
    left -= leaf_bytes;
    Segment segment = NextToRead(segments, leaf_bytes);
    if (segment.bytes == leaf_bytes && reader.copies()) {
      hash = HashLeaf(std::span(At(segment), leaf_bytes));
      continue;
    }
    for (int64_t done = 0;;) {
      Read(reader, segment, &scratch[done]);
      done += segment.bytes;
      if (done == leaf_bytes) break;
      segment = NextToRead(segments, leaf_bytes - done);
    }
    hash = HashLeaf(scratch.first(leaf_bytes));
  }
}

}  // namespace crossmesh
