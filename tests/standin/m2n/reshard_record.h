#pragma once

#include "worker/gpu/libraries/m2n_declarations.h"

#include <array>
#include <cstddef>
#include <vector>

#include <cuda.h>

namespace crossmesh {

// One side of a call, copied with all that it points to. Axes of the mesh are two, dimensions of
// the tensor three: of length 1 where the call has fewer, before those that it has.
struct RecordedSide {
  std::byte* memory = nullptr;
  std::array<size_t, 3> tile = {1, 1, 1};
  int first_rank = 0;
  int ranks = 1;
  int cut = -1;  // the dimension; -1: all ranks have all of it
  int parts = 1;
  bool parts_first = false;  // whether the parts are the slower axis

  int copies() const { return ranks / parts; }
  bool has(int rank) const { return rank >= first_rank && rank < first_rank + ranks; }
  int RankOf(int part, int copy) const {
    return first_rank + (parts_first ? part * copies() + copy : copy * parts + part);
  }
  int PartOf(int rank) const {
    return parts_first ? (rank - first_rank) / copies() : (rank - first_rank) % parts;
  }
  int CopyOf(int rank) const {
    return parts_first ? (rank - first_rank) % copies() : (rank - first_rank) / parts;
  }
  size_t length(int dimension) const {
    return dimension == cut ? tile[dimension] * parts : tile[dimension];
  }
};

// One call of ncclReshard, whose descriptors were checked. Immutable.
struct RecordedReshard {
  ncclComm_t communicator = nullptr;
  CUstream stream = nullptr;
  RecordedSide source;
  RecordedSide destination;
  size_t item_bytes = 1;
};

RecordedSide RecordSide(const ncclDistTensor_t& tensor);

}  // namespace crossmesh
