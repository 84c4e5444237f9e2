#include "worker/executor/source_scales.h"

#include "common/mesh/conversion.h"
#include "common/numbers/block_scale.h"

#include <algorithm>
#include <set>

namespace crossmesh {
namespace {

constexpr int64_t kElementBytes = 2;  // of bf16

int64_t BlocksOf(int64_t elements) {
  return (elements + kScaleBlockLength - 1) / kScaleBlockLength;
}

}  // namespace

DeviceScales::DeviceScales(const TensorTable& tensors, DeviceRank device, const BoundTiles& source)
    : tiles_(source), scaled_of_tensor_(tensors.group_of_tensor().size(), -1) {
  tiles_.tensor.resize(tensors.group_of_tensor().size());
  const std::vector<int32_t>& scaled_tensors = tensors.spec().scaled_tensors;
  for (size_t i = 0; i < scaled_tensors.size(); ++i) {
    const int32_t tensor = scaled_tensors[i];
    const Tile tile = tensors.TileOf(Side::kSource, tensors.group_of_tensor()[tensor], device);
    if (tile.empty()) continue;
    scaled_of_tensor_[tensor] = static_cast<int32_t>(scaled_.size());
    scaled_.push_back(TileOf(tile, tiles_.tensor[tensor]));
    tiles_.tensor[tensors.first_scales() + i] =
        reinterpret_cast<std::byte*>(scaled_.back().scales.data());
  }
}

DeviceScales::ScaledTile DeviceScales::TileOf(const Tile& tile, const std::byte* elements) {
  ScaledTile scaled{.elements = elements};
  int64_t elements_before = 0;
  int64_t blocks = 0;
  for (const Box& box : tile) {
    const int64_t rows = box[box.rank() - 2].length();
    const int64_t columns = box[box.rank() - 1].length();
    scaled.boxes.push_back({.rows = rows,
                            .columns = columns,
                            .first_element = elements_before,
                            .elements = box.volume(),
                            .first_block = blocks,
                            .block_columns = BlocksOf(columns),
                            .block_rows = BlocksOf(rows)});
    elements_before += box.volume();
    blocks += box.volume() / (rows * columns) * BlocksOf(rows) * BlocksOf(columns);
  }
  scaled.scales.resize(blocks);
  scaled.factors.resize(blocks);
  return scaled;
}

int64_t DeviceScales::Step() {
  ScaledTile& tile = scaled_[tile_];
  const BlockedBox& box = tile.boxes[box_];
  ScaleRow(tile, box, row_of_blocks_);
  const int64_t read_bytes = std::min(box.rows, kScaleBlockLength) * box.columns * kElementBytes;
  const int64_t matrices = box.elements / (box.rows * box.columns);
  if (++row_of_blocks_ == matrices * box.block_rows) {
    row_of_blocks_ = 0;
    if (++box_ == std::ssize(tile.boxes)) {
      box_ = 0;
      ++tile_;
    }
  }
  return read_bytes;
}

void DeviceScales::ScaleRow(ScaledTile& tile, const BlockedBox& box, int64_t row_of_blocks) {
  const int64_t matrix = row_of_blocks / box.block_rows;
  const int64_t row = row_of_blocks % box.block_rows * kScaleBlockLength;
  const std::byte* const begin =
      tile.elements + (box.first_element + (matrix * box.rows + row) * box.columns) * kElementBytes;
  const int64_t first_block = box.first_block + row_of_blocks * box.block_columns;
  for (int64_t i = 0; i < box.block_columns; ++i) {
    const int64_t column = i * kScaleBlockLength;
    const BlockScale scale = ScaleOf({.begin = begin + column * kElementBytes,
                                      .rows = std::min(kScaleBlockLength, box.rows - row),
                                      .columns = std::min(kScaleBlockLength, box.columns - column),
                                      .pitch_bytes = box.columns * kElementBytes});
    tile.scales[first_block + i] = scale.scale;
    tile.factors[first_block + i] = scale.factor;
  }
}

void DeviceScales::Quantize(const Run& run, std::byte* to) const {
  const ScaledTile& tile = scaled_[scaled_of_tensor_[run.tensor]];
  const int64_t begin = run.tile_offset / kElementBytes;
  const BlockedBox& box =
      *std::prev(std::ranges::upper_bound(tile.boxes, begin, {}, &BlockedBox::first_element));
  // Piece by piece of a row in a block.
  for (int64_t element = begin; element < begin + run.bytes;) {
    const int64_t row_of_all = (element - box.first_element) / box.columns;
    const int64_t column = (element - box.first_element) % box.columns;
    const int64_t row_of_blocks =
        row_of_all / box.rows * box.block_rows + row_of_all % box.rows / kScaleBlockLength;
    const int64_t block =
        box.first_block + row_of_blocks * box.block_columns + column / kScaleBlockLength;
    const int64_t count = std::min({begin + run.bytes - element, box.columns - column,
                                    kScaleBlockLength - column % kScaleBlockLength});
    QuantizeElements(tile.elements + element * kElementBytes, to, count, tile.factors[block]);
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
