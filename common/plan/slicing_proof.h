#pragma once

#include "common/plan/slicing.h"
#include "common/plan/tensor_table.h"

#include <cstdint>
#include <span>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// What the tiles of all tensors mean for each device's memory.
struct TileFootprint {
  std::vector<int64_t> source_bytes;       // [device]
  std::vector<int64_t> destination_bytes;  // [device]
  // [device]: a group whose source and destination tiles differ, by type if nothing else, or -1.
  std::vector<int32_t> moved_group;
};

// Proves that a slicing is one of these tensors' layouts, from the layouts' tiles and not by the
// tables that made the slicing: cells form a grid, so they are disjoint; every cell of a class lies
// within a tile of each of its holders and receivers, and is converted as its tensors are; and the
// cells that a device needs add up to the
// volume of its destination tile. Only for `devices`, or for all when there are none. Internal when
// it does not hold. Cost: linear in cells, and in the slots of every group.
absl::StatusOr<TileFootprint> ProveSlicing(const TensorTable& tensors, const Slicing& slicing,
                                           std::span<const DeviceRank> devices = {});

// FailedPrecondition when a device has tiles on both sides and they differ: it could not write its
// destination tiles over its source tiles.
absl::Status ProveInPlace(const TensorTable& tensors, const TileFootprint& memory);

}  // namespace crossmesh
