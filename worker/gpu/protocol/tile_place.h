#pragma once

#include "common/base/strong_int.h"

#include <cstdint>

namespace crossmesh {

// Names memory of a GPU, as long as its worker runs. 0 is none.
using ArenaId = StrongInt<struct ArenaIdTag, uint64_t>;

// Where a tile begins.
struct TilePlace {
  ArenaId arena;  // 0: the device holds nothing of the tensor
  int64_t offset = 0;

  friend bool operator==(const TilePlace&, const TilePlace&) = default;
};

// Bytes of an arena.
struct TileRange {
  int64_t offset = 0;
  int64_t bytes = 0;  // at least 1

  int64_t end() const { return offset + bytes; }
  friend bool operator==(const TileRange&, const TileRange&) = default;
};

}  // namespace crossmesh
