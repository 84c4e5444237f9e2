#pragma once

#include "common/plan/plan.h"
#include "worker/executor/task.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>

namespace crossmesh {

// Memory of all devices of a plan, each tile on its own between guard bytes. Source elements have
// values that follow from (tensor, index of the element in it), so that the right contents of a
// destination are known without moving anything: what gathering all tiles and slicing them anew
// gives, converted in between where that is asked for. Thread-compatible.
class TileMemory {
 public:
  explicit TileMemory(const Plan& plan);

  // Empty for a device that is not on that side.
  const BoundTiles& tiles(Side side, DeviceRank device) const;

  // Other contents in all destination tiles of the device.
  void SpoilDestination(DeviceRank device);

  // All of it, tile by tile, each with its guards: to be carried to where a test moves it, and
  // back.
  std::vector<std::span<std::byte>> blocks();

  // DataLoss, naming tensor and element, when a destination element of the device is not right.
  absl::Status CheckDestination(DeviceRank device) const;
  // DataLoss when a byte outside of tiles, or one of a source that is not a destination as well,
  // has changed.
  absl::Status CheckUntouched() const;

 private:
  struct Block {
    std::vector<std::byte> bytes;  // with guards
    int64_t tile_bytes = 0;
    int32_t tensor = 0;
    DeviceRank device = 0;
    bool source = false;
    bool destination = false;
  };

  std::byte* AddBlock(Side side, int32_t tensor, DeviceRank device);
  // As they must be.
  std::vector<std::byte> WholeTensor(Side side, int32_t tensor) const;
  std::vector<std::byte> Expected(Side side, int32_t tensor, DeviceRank device) const;

  const Plan& plan_;
  std::vector<std::unique_ptr<Block>> blocks_;
  absl::flat_hash_map<DeviceRank, BoundTiles> sources_;
  absl::flat_hash_map<DeviceRank, BoundTiles> destinations_;
  BoundTiles none_;
};

}  // namespace crossmesh
