#include "common/plan/storage_layout.h"

namespace crossmesh {

StorageLayout LayOut(const TensorTable& tensors, Side side, DeviceRank device) {
  std::vector<int64_t> bytes_of_group;
  for (int32_t group = 0; group < std::ssize(tensors.groups()); ++group) {
    const bool is_computed = side == Side::kSource && tensors.is_scales(group);
    bytes_of_group.push_back(is_computed ? 0
                                         : Volume(tensors.TileOf(side, group, device)) *
                                               tensors.ItemBytesOf(side, group));
  }
  StorageLayout layout;
  for (const int32_t group : tensors.group_of_tensor()) {
    const int64_t bytes = group < 0 ? 0 : bytes_of_group[group];
    layout.offset_of_tensor.push_back(bytes == 0 ? -1 : layout.bytes);
    const int64_t tiles =
        (bytes + StorageLayout::kTileAlignment - 1) / StorageLayout::kTileAlignment;
    layout.bytes += tiles * StorageLayout::kTileAlignment;
  }
  return layout;
}

}  // namespace crossmesh
