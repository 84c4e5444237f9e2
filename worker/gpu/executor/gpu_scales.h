#pragma once

#include "common/plan/packed_segments.h"
#include "worker/executor/blocked_tile.h"
#include "worker/gpu/compiler/compiled_part.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/device/gpu_memory.h"
#include "worker/gpu/kernels/kernel_arguments.h"
#include "worker/gpu/kernels/kernel_launches.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// The scales of source tiles that a compiled part sends as F8_E4M3, and the factors that their
// elements are multiplied with: memory of the GPU for them, and the matrices from which one launch
// of crossmesh_scale finds all. Thread-compatible; confined to the thread of its Gpu.
class GpuScales {
 public:
  // `sources` are addresses of tiles, by manifest index. What CheckTile refuses; ResourceExhausted:
  // no memory, or more blocks than a launch has.
  // Cost: linear in the matrices of the tiles. `gpu` must outlive it.
  static absl::StatusOr<std::unique_ptr<GpuScales>> Create(Gpu& gpu, const CompiledPart& compiled,
                                                           std::span<const uint64_t> sources);

  // Those, and the tiles of scales.
  const std::vector<uint64_t>& sources() const { return sources_; }
  const std::vector<ScaledMatrix>& matrices() const { return matrices_; }
  // In all matrices; 0 where the compiled part needs no scales.
  int64_t blocks() const { return blocks_; }

  // Appends a segment of a tensor that is quantized. Cost: linear in rows.
  void Append(const Segment& segment, KernelBoxList& list) const;

 private:
  struct ScaledTile {
    int32_t tensor = 0;
    int32_t scales_tensor = 0;
    BlockedTile blocks;
    int64_t first_block = 0;
  };

  GpuScales() = default;
  void AddTile(ScaledTile tile);
  void AddMatrices(const ScaledTile& tile, const BlockedTile::Stack& stack);
  uint64_t ScaleAt(int64_t block) const;
  uint64_t FactorAt(int64_t block) const;

  std::vector<uint64_t> sources_;
  std::vector<ScaledTile> tiles_;
  absl::flat_hash_map<int32_t, size_t> tile_of_tensor_;
  std::vector<ScaledMatrix> matrices_;
  int64_t blocks_ = 0;
  std::unique_ptr<GpuMemory> memory_;  // all scales, all factors; null without blocks
};

}  // namespace crossmesh
