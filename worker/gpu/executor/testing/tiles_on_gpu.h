#pragma once

#include "common/base/byte_count.h"
#include "common/base/status_macros.h"
#include "common/plan/packed_segments.h"
#include "common/plan/plan.h"
#include "common/plan/testing/random_source.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/device/gpu_memory.h"
#include "worker/gpu/executor/gpu_legs.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// The tiles of a device in memory of its GPU, which NCCL takes alone where it reads tiles, and
// which a stand-in's is the host's as well. Each begins somewhere.
class TilesOnGpu {
 public:
  static absl::StatusOr<TilesOnGpu> Create(Gpu& gpu, const Plan& plan, DeviceRank device,
                                           const TileMemory& memory, RandomSource& random) {
    TilesOnGpu tiles;
    int64_t bytes = 0;
    for (const Side side : {Side::kSource, Side::kDestination}) {
      const TileMap map(plan.tensors(), plan.slicing(), side, device);
      const auto& tensors = memory.tiles(side, device).tensor;
      std::vector<uint64_t>& offsets =
          side == Side::kSource ? tiles.gpu_.source : tiles.gpu_.destination;
      for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
        offsets.push_back(0);
        if (tensors[tensor] == nullptr) continue;
        bytes += 8 * random.Between(1, 64);
        const int64_t tile_bytes =
            map.tile_bytes(map.tensors().group_of_tensor()[static_cast<int32_t>(tensor)]);
        tiles.images_.push_back({tensors[tensor], bytes, tile_bytes});
        offsets.back() = bytes;
        bytes = (bytes + tile_bytes + 7) / 8 * 8;
      }
    }
    ASSIGN_OR_RETURN(tiles.memory_, GpuMemory::Create(gpu, ByteCount(bytes + 8), {}));
    const uint64_t address = tiles.memory_->address();
    for (auto* const side : {&tiles.gpu_.source, &tiles.gpu_.destination}) {
      for (uint64_t& tile : *side) tile = tile == 0 ? 0 : address + tile;
    }
    for (const Image& image : tiles.images_) {
      std::memcpy(tiles.On(image), image.tile, image.bytes);
    }
    return tiles;
  }

  const GpuTiles& gpu() const { return gpu_; }
  // Brings what is on the GPU to the memory of the test.
  void Fetch() const {
    for (const Image& image : images_) std::memcpy(image.tile, On(image), image.bytes);
  }

 private:
  struct Image {
    std::byte* tile = nullptr;
    int64_t offset = 0;
    int64_t bytes = 0;
  };
  std::byte* On(const Image& image) const {
    return reinterpret_cast<std::byte*>(memory_->address()) + image.offset;
  }

  std::unique_ptr<GpuMemory> memory_;
  std::vector<Image> images_;
  GpuTiles gpu_;
};

}  // namespace crossmesh
