#include "worker/executor/source_scales.h"

#include "common/mesh/conversion.h"
#include "common/numbers/block_scale.h"

#include <algorithm>
#include <set>
#include <utility>

namespace crossmesh {
namespace {

constexpr int64_t kElementBytes = 2;  // of bf16

}  // namespace

DeviceScales::DeviceScales(const TensorTable& tensors, DeviceRank device, const BoundTiles& source)
    : tiles_(source), scaled_of_tensor_(tensors.group_of_tensor().size(), -1) {
  tiles_.tensor.resize(tensors.group_of_tensor().size());
  const std::vector<int32_t>& scaled_tensors = tensors.spec().scaled_tensors;
  for (size_t i = 0; i < scaled_tensors.size(); ++i) {
    const int32_t tensor = scaled_tensors[i];
    BlockedTile blocks(tensors.TileOf(Side::kSource, tensors.group_of_tensor()[tensor], device));
    if (blocks.blocks() == 0) continue;
    scaled_of_tensor_[tensor] = static_cast<int32_t>(scaled_.size());
    const auto count = static_cast<size_t>(blocks.blocks());
    scaled_.push_back({.elements = tiles_.tensor[tensor],
                       .blocks = std::move(blocks),
                       .scales = std::vector<float>(count),
                       .factors = std::vector<float>(count)});
    // Scales are a tensor of the table like any other: their tile is where they are computed.
    tiles_.tensor[tensors.first_scales() + i] =
        reinterpret_cast<std::byte*>(scaled_.back().scales.data());
  }
}

int64_t DeviceScales::Step() {
  ScaledTile& tile = scaled_[tile_];
  const BlockedTile::Stack& stack = tile.blocks.stacks()[stack_];
  // A row of blocks at a time, so that a step of the task stays short.
  ScaleRow(tile, stack, row_of_blocks_);
  const int64_t read_bytes =
      std::min(stack.rows, kScaleBlockLength) * stack.columns * kElementBytes;
  if (++row_of_blocks_ == stack.matrices * stack.block_rows) {
    row_of_blocks_ = 0;
    if (++stack_ == std::ssize(tile.blocks.stacks())) {
      stack_ = 0;
      ++tile_;
    }
  }
  return read_bytes;
}

void DeviceScales::ScaleRow(ScaledTile& tile, const BlockedTile::Stack& stack,
                            int64_t row_of_blocks) {
  const int64_t matrix = row_of_blocks / stack.block_rows;
  const int64_t row = row_of_blocks % stack.block_rows * kScaleBlockLength;
  const std::byte* const begin =
      tile.elements +
      (stack.first_element + (matrix * stack.rows + row) * stack.columns) * kElementBytes;
  const int64_t first_block = stack.first_block + row_of_blocks * stack.block_columns;
  for (int64_t i = 0; i < stack.block_columns; ++i) {
    const int64_t column = i * kScaleBlockLength;
    const BlockScale scale =
        ScaleOf({.begin = begin + column * kElementBytes,
                 .rows = std::min(kScaleBlockLength, stack.rows - row),
                 .columns = std::min(kScaleBlockLength, stack.columns - column),
                 .pitch_bytes = stack.columns * kElementBytes});
    tile.scales[first_block + i] = scale.scale;
    tile.factors[first_block + i] = scale.factor;
  }
}

void DeviceScales::Quantize(const Segment& segment, std::byte* to) const {
  const ScaledTile& tile = scaled_[scaled_of_tensor_[segment.tensor]];
  const int64_t begin = segment.tile_offset / kElementBytes;
  for (int64_t element = begin; element < begin + segment.bytes;) {
    const BlockedTile::Place place = tile.blocks.At(element);
    const int64_t count = std::min(begin + segment.bytes - element, place.block_row_left);
    QuantizeElements(tile.elements + element * kElementBytes, to, count, tile.factors[place.block]);
    element += count;
    to += count;
  }
}

SourceScales::SourceScales(const PreparedPart& part,
                           const absl::flat_hash_map<DeviceRank, BoundTiles>& sources) {
  const TensorTable& tensors = part.part().tensors();
  if (tensors.spec().scaled_tensors.empty()) return;
  std::set<DeviceRank> read;
  for (const PreparedPart::Copy& copy : part.copies()) read.insert(copy.device);
  for (const PreparedPart::Node& node : part.nodes()) {
    if (node.root) read.insert(node.device);
  }
  for (const DeviceRank device : read) {
    auto scales = std::make_unique<DeviceScales>(tensors, device, sources.at(device));
    if (scales->done()) continue;  // it has none
    of_device_.emplace(device, std::move(scales));
    devices_.push_back(device);
  }
  filled_.reserve(devices_.size());
}

const DeviceScales* SourceScales::Find(DeviceRank device) const {
  const auto found = of_device_.find(device);
  return found == of_device_.end() ? nullptr : found->second.get();
}

void SourceScales::OnSourceHere(DeviceRank device) {
  if (std::ranges::find(filled_, device) == filled_.end()) filled_.push_back(device);
}

SourceScales::Progress SourceScales::Step() {
  const DeviceRank device = filled_[next_];
  DeviceScales& scales = *of_device_.at(device);
  Progress progress{.read_bytes = scales.Step()};
  if (scales.done()) {
    progress.done = device;
    ++next_;
  }
  return progress;
}

}  // namespace crossmesh
