#include "tests/standin/m2n/reshard_record.h"

namespace crossmesh {

RecordedSide RecordSide(const ncclDistTensor_t& tensor) {
  RecordedSide side = {.memory = static_cast<std::byte*>(tensor.dataPtr),
                       .first_rank = tensor.mesh->startRank};
  const int added = 3 - tensor.ndims;
  for (int d = 0; d < tensor.ndims; ++d) side.tile[added + d] = tensor.localShape[d];
  for (int axis = 0; axis < tensor.mesh->ndims; ++axis) {
    side.ranks *= tensor.mesh->dims[axis];
    if (tensor.placements[axis] < 0) continue;
    side.cut = added + tensor.placements[axis];
    side.parts = tensor.mesh->dims[axis];
    side.parts_first = axis == 0;
  }
  return side;
}

}  // namespace crossmesh
