#pragma once

#include "common/plan/tensor_table.h"

#include <cstdint>
#include <vector>

namespace crossmesh {

// Where the tiles of one device lie in an arena: tensors in manifest order, after them scales,
// each tile starting at a multiple of kTileAlignment, boxes in tile order, elements row-major. The
// contract with user processes that map an arena. Immutable.
struct StorageLayout {
  static constexpr int64_t kTileAlignment = 64;
  std::vector<int64_t> offset_of_tensor;  // -1: the device holds nothing of it
  int64_t bytes = 0;
};
// The layout of what `device` holds on `side`; empty when that is nothing. Cost: linear in tensors.
StorageLayout LayOut(const TensorTable& tensors, Side side, DeviceRank device);

}  // namespace crossmesh
