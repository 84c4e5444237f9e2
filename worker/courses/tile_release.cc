#include "worker/courses/tile_release.h"

#include "common/base/status_macros.h"
#include "common/mesh/box.h"
#include "common/plan/storage_layout.h"
#include "common/plan/tensor_table.h"
#include "worker/executor/prepared_part.h"

namespace crossmesh {

absl::Status TileRelease::EmptyDestinations(const TaskSpec& task) const {
  const TensorTable& tensors = task.part->part().tensors();
  for (const auto& [device, tiles] : task.destinations) {
    std::span<std::byte> together;
    for (size_t t = 0; t < tiles.tensor.size(); ++t) {
      std::byte* const tile = tiles.tensor[t];
      if (tile == nullptr) continue;
      const int32_t group = tensors.group_of_tensor()[t];
      const int64_t bytes = Volume(tensors.TileOf(Side::kDestination, group, device)) *
                            tensors.ItemBytesOf(Side::kDestination, group);
      std::byte* const end = together.data() + together.size();
      const bool is_next =
          !together.empty() && tile >= end && tile - end < StorageLayout::kTileAlignment;
      if (!is_next) {
        if (!together.empty()) RETURN_IF_ERROR(release_(together));
        together = {tile, static_cast<size_t>(bytes)};
      } else {
        together = {together.data(), static_cast<size_t>(tile + bytes - together.data())};
      }
    }
    if (!together.empty()) RETURN_IF_ERROR(release_(together));
  }
  return absl::OkStatus();
}

absl::Status TileRelease::Release(const std::vector<RowsInTile>& rows) {
  for (const RowsInTile& of_tile : rows) {
    if (of_tile.rows == 0) continue;
    // Before, since what an error leaves is not whole either.
    released_.insert(of_tile.device);
    for (int64_t row = 0; row < of_tile.rows; ++row) {
      RETURN_IF_ERROR(
          release_({of_tile.first + row * of_tile.pitch, static_cast<size_t>(of_tile.row_bytes)}));
    }
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
