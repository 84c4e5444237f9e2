#include "tests/standin/m2n/reshard_messages.h"

#include <algorithm>
#include <array>

namespace crossmesh {
namespace {

// Half-open, in each dimension.
struct Block {
  std::array<size_t, 3> begin = {};
  std::array<size_t, 3> end = {};

  bool empty() const { return begin[0] >= end[0] || begin[1] >= end[1] || begin[2] >= end[2]; }
};

Block BlockOf(const RecordedSide& side, int part) {
  Block block = {.end = side.tile};
  if (side.cut < 0) return block;
  block.begin[side.cut] = part * side.tile[side.cut];
  block.end[side.cut] = block.begin[side.cut] + side.tile[side.cut];
  return block;
}

Block Intersect(const Block& a, const Block& b) {
  Block met;
  for (int d = 0; d < 3; ++d) {
    met.begin[d] = std::max(a.begin[d], b.begin[d]);
    met.end[d] = std::min(a.end[d], b.end[d]);
  }
  return met;
}

// Elements before it in the tile.
size_t PlaceIn(const RecordedSide& side, const Block& block, const std::array<size_t, 3>& at) {
  size_t place = 0;
  for (int d = 0; d < 3; ++d) place = place * side.tile[d] + at[d] - block.begin[d];
  return place;
}

// The copy of the source that sends to a copy of the destination: as many copies as there may be
// send, each to a run of copies, the first of which are longer by one.
int SenderOf(int sources, int destinations, int copy) {
  const int senders = std::min(sources, destinations);
  const auto first_of = [senders](int items, int share) {
    return share * (items / senders) + std::min(share, items % senders);
  };
  int share = senders - 1;
  while (first_of(destinations, share) > copy) --share;
  return first_of(sources, share);
}

// Row after row.
void AppendRows(const RecordedSide& side, int part, const Block& met, ReshardMessage row,
                std::vector<ReshardMessage>& messages) {
  const Block block = BlockOf(side, part);
  std::byte* const memory = row.memory;
  const size_t item_bytes = row.bytes;
  row.bytes = (met.end[2] - met.begin[2]) * item_bytes;
  for (size_t i = met.begin[0]; i < met.end[0]; ++i) {
    for (size_t j = met.begin[1]; j < met.end[1]; ++j) {
      row.memory = memory + PlaceIn(side, block, {i, j, met.begin[2]}) * item_bytes;
      messages.push_back(row);
    }
  }
}

}  // namespace

int PartsMet(const RecordedSide& side, const RecordedSide& other) {
  int most = 0;
  for (int part = 0; part < side.parts; ++part) {
    int met = 0;
    for (int other_part = 0; other_part < other.parts; ++other_part) {
      if (!Intersect(BlockOf(side, part), BlockOf(other, other_part)).empty()) ++met;
    }
    most = std::max(most, met);
  }
  return most;
}

void AppendMessages(const RecordedReshard& reshard, int rank,
                    std::vector<ReshardMessage>& messages) {
  const auto& [communicator, stream, source, destination, item_bytes] = reshard;
  for (int to = destination.first_rank; to < destination.first_rank + destination.ranks; ++to) {
    const int part = destination.PartOf(to);
    const int sender = SenderOf(source.copies(), destination.copies(), destination.CopyOf(to));
    for (int source_part = 0; source_part < source.parts; ++source_part) {
      const int from = source.RankOf(source_part, sender);
      const Block met = Intersect(BlockOf(source, source_part), BlockOf(destination, part));
      if (met.empty()) continue;
      if (rank == from) {
        AppendRows(source, source_part, met,
                   {.peer = to, .memory = source.memory, .bytes = item_bytes, .is_sent = true},
                   messages);
      }
      if (rank == to) {
        AppendRows(destination, part, met,
                   {.peer = from, .memory = destination.memory, .bytes = item_bytes}, messages);
      }
    }
  }
}

}  // namespace crossmesh
