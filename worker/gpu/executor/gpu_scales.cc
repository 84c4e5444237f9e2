#include "worker/gpu/executor/gpu_scales.h"

#include "common/base/status_macros.h"
#include "worker/gpu/executor/tile_check.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int64_t kElementBytes = 2;  // of bf16
constexpr int64_t kScaleBytes = sizeof(float);
// Of a launch. Every matrix has one at least.
constexpr int64_t kBlocksMax = std::numeric_limits<int32_t>::max();

}  // namespace

absl::StatusOr<std::unique_ptr<GpuScales>> GpuScales::Create(Gpu& gpu, const CompiledPart& compiled,
                                                             std::span<const uint64_t> sources) {
  const TensorTable& tensors = compiled.part().part().tensors();
  auto scales = absl::WrapUnique(new GpuScales);
  scales->sources_.assign(sources.begin(), sources.end());
  scales->sources_.resize(tensors.group_of_tensor().size());
  for (const int32_t scaled : compiled.scaled()) {
    const int32_t tensor = tensors.spec().scaled_tensors[scaled];
    RETURN_IF_ERROR(CheckTile(compiled, Side::kSource, tensor, sources));
    const int32_t group = tensors.group_of_tensor()[tensor];
    scales->AddTile(
        {.tensor = tensor,
         .scales_tensor = tensors.first_scales() + scaled,
         .blocks = BlockedTile(tensors.TileOf(Side::kSource, group, compiled.device()))});
  }
  if (scales->blocks_ == 0) return scales;
  if (scales->blocks_ > kBlocksMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("scales of device ", ToString(tensors.devices()[compiled.device()]),
                     ": expected at most ", kBlocksMax, " blocks, found ", scales->blocks_));
  }
  ASSIGN_OR_RETURN(scales->memory_,
                   GpuMemory::Create(gpu, ByteCount(2 * scales->blocks_ * kScaleBytes), {}));
  for (const ScaledTile& tile : scales->tiles_) {
    // From here on the scales are a source tile like any other.
    scales->sources_[tile.scales_tensor] = scales->ScaleAt(tile.first_block);
    for (const BlockedTile::Stack& stack : tile.blocks.stacks()) scales->AddMatrices(tile, stack);
  }
  return scales;
}

void GpuScales::AddTile(ScaledTile tile) {
  tile.first_block = blocks_;
  blocks_ += tile.blocks.blocks();
  tile_of_tensor_[tile.tensor] = tiles_.size();
  tiles_.push_back(std::move(tile));
}

void GpuScales::AddMatrices(const ScaledTile& tile, const BlockedTile::Stack& stack) {
  const int64_t elements_of_matrix = stack.rows * stack.columns;
  const int64_t blocks_of_matrix = stack.block_rows * stack.block_columns;
  for (int64_t i = 0; i < stack.matrices; ++i) {
    const int64_t element = stack.first_element + i * elements_of_matrix;
    const int64_t block = tile.first_block + stack.first_block + i * blocks_of_matrix;
    matrices_.push_back({.address = sources_[tile.tensor] + element * kElementBytes,
                         .rows = stack.rows,
                         .columns = stack.columns,
                         .pitch_bytes = stack.columns * kElementBytes,
                         .scales_address = ScaleAt(block),
                         .factors_address = FactorAt(block),
                         .scales_pitch_bytes = stack.block_columns * kScaleBytes,
                         .first_block = block});
  }
}

void GpuScales::Append(const Segment& segment, KernelBoxList& list) const {
  const ScaledTile& tile = tiles_[tile_of_tensor_.at(segment.tensor)];
  const int64_t begin = segment.tile_offset / kElementBytes;
  const int64_t end = begin + segment.bytes;
  for (int64_t element = begin; element < end;) {
    const BlockedTile::Place place = tile.blocks.At(element);
    const int64_t count = std::min(end - element, place.row_left);
    list.AppendQuantized(sources_[segment.tensor] + element * kElementBytes, count,
                         FactorAt(tile.first_block + place.block));
    element += count;
  }
}

uint64_t GpuScales::ScaleAt(int64_t block) const {
  return memory_->address() + block * kScaleBytes;
}

uint64_t GpuScales::FactorAt(int64_t block) const { return ScaleAt(blocks_ + block); }

}  // namespace crossmesh
