#pragma once

#include "worker/transport/pieces.h"
#include "worker/transport/socket/socket_frame.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace crossmesh {

// A region of this process's memory that was lent.
struct LentRegion {
  uint64_t id = 0;
  std::span<const std::byte> bytes;
  RegionFile file;
};

// All that a transport has lent. Thread-compatible.
class LentRegions {
 public:
  // Its id is never used again. Not when `memory` overlaps what is there.
  void Add(const LentMemory& memory);
  // The id of the region that `memory` was, or none.
  std::optional<uint64_t> Remove(std::span<const std::byte> memory);
  // The region in which all pieces lie, of which there is one; or none.
  const LentRegion* Find(Pieces pieces) const;

 private:
  uint64_t last_id_ = 0;
  std::vector<LentRegion> regions_;  // by address
};

}  // namespace crossmesh
