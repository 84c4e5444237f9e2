#pragma once

#include "worker/memory/arena.h"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace crossmesh {

// Which bytes of which allocations of user processes a storage has. Two loans by one handle are the
// same allocation; two by descriptors are not, since nothing tells. Immutable.
class BoundExtents {
 public:
  // None: memory of the worker.
  BoundExtents() = default;
  // All of what was lent.
  static BoundExtents OfLoan(const Arena& allocation);
  // Cost: that of sorting the pieces.
  static BoundExtents OfPieces(std::span<const BoundPiece> pieces);

  // Whether there is a byte that both have. Cost: linear in the extents; pieces that touch are one.
  bool Overlaps(const BoundExtents& other) const;

 private:
  struct Extent {
    int64_t begin = 0;
    int64_t end = 0;
  };

  void Add(const Arena& allocation, Extent extent);
  // Ascending and apart from here on.
  void Merge();

  std::map<std::string, std::vector<Extent>> extents_;  // by allocation
};

}  // namespace crossmesh
