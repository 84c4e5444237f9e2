#pragma once

#include "common/plan/class_table.h"
#include "common/plan/slicing.h"
#include "common/plan/tensor_table.h"

#include <cstdint>
#include <vector>

namespace crossmesh {

// Where the relays of a class are cut into chunks: the same at every worker, however little
// of the request it sees. Immutable.
//
// A tensor with at least a quarter of a chunk in the class begins and ends a chunk, so that no
// chunk of it shares memory with another tensor's; smaller ones share chunks. What lies between
// two such edges is cut into the fewest equal chunks, rounded up to 4 KiB.
//
// Example: chunks of 1 MiB, and a class with 0.1, 0.1, 2.5 and 0.1 MiB of four tensors. Its relay
// of all bytes has the chunks [0, 0.2), three up to 2.7 of which the last is the shortest, and
// [2.7, 2.8).
class ChunkCuts {
 public:
  // `chunk_bytes`, positive, is the most of a chunk, rounded up to 4 KiB. Cost: linear in tensors.
  ChunkCuts(const TensorTable& tensors, const Slicing& slicing, ClassIndex slice_class,
            int64_t chunk_bytes);

  // Appends where the chunks of a relay begin, without its end. 0 <= begin < end <= the packed
  // bytes of the class. Cost: linear in the chunks, logarithmic in tensors.
  void AppendCuts(int64_t begin, int64_t end, std::vector<int64_t>& cuts) const;

 private:
  const int64_t chunk_bytes_;
  std::vector<int64_t> edges_;  // packed offsets, ascending
};

}  // namespace crossmesh
