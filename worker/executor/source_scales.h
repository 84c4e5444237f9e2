#pragma once

#include "common/plan/packed_segments.h"
#include "worker/executor/blocked_tile.h"
#include "worker/executor/prepared_part.h"
#include "worker/executor/task.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <absl/container/flat_hash_map.h>

namespace crossmesh {

// The scales of the source tiles of one device that are sent as F8_E4M3 (common/plan/
// scale_tensors.h), which the task computes before it sends anything of them. Thread-compatible.
class DeviceScales {
 public:
  // Takes memory for all scales. Both must outlive it.
  DeviceScales(const TensorTable& tensors, DeviceRank device, const BoundTiles& source);

  // The source's tiles, and those of its scales.
  const BoundTiles& tiles() const { return tiles_; }
  bool done() const { return tile_ == std::ssize(scaled_); }
  // Computes some scales, of a row of blocks. Returns how many bytes were read for them.
  int64_t Step();
  // Writes the elements of a segment of a tensor that has scales, quantized. Not before done().
  void Quantize(const Segment& segment, std::byte* to) const;

 private:
  struct ScaledTile {
    const std::byte* elements = nullptr;
    BlockedTile blocks;
    std::vector<float> scales;   // [block]
    std::vector<float> factors;  // [block]
  };

  static void ScaleRow(ScaledTile& tile, const BlockedTile::Stack& stack, int64_t row_of_blocks);

  BoundTiles tiles_;
  std::vector<int32_t> scaled_of_tensor_;  // index into scaled_, or -1
  std::vector<ScaledTile> scaled_;
  // What Step does next.
  int64_t tile_ = 0;
  int64_t stack_ = 0;
  int64_t row_of_blocks_ = 0;  // of all matrices of the stack
};

// The scales of all devices whose source tiles a task reads, computed device by device as the tiles
// are filled.
// Confined to the loop.
class SourceScales {
 public:
  // Both must outlive it.
  SourceScales(const PreparedPart& part,
               const absl::flat_hash_map<DeviceRank, BoundTiles>& sources);

  // Null where nothing of the device has scales.
  const DeviceScales* Find(DeviceRank device) const;
  // The devices that have some.
  const std::vector<DeviceRank>& devices() const { return devices_; }

  // The tiles of a device that has scales are filled. Repeatable.
  void OnSourceHere(DeviceRank device);
  // Is there nothing to compute, for now?
  bool idle() const { return next_ == filled_.size(); }
  struct Progress {
    int64_t read_bytes = 0;
    std::optional<DeviceRank> done;  // its scales are complete now
  };
  // Computes some scales of one device. Not when idle.
  Progress Step();

 private:
  absl::flat_hash_map<DeviceRank, std::unique_ptr<DeviceScales>> of_device_;
  std::vector<DeviceRank> devices_;
  std::vector<DeviceRank> filled_;  // in the order in which they were
  size_t next_ = 0;                 // of those that are filled
};

}  // namespace crossmesh
