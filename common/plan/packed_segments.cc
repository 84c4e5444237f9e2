#include "common/plan/packed_segments.h"

#include "common/base/check.h"

#include <algorithm>
#include <cstdlib>
#include <span>

namespace crossmesh {
namespace {

bool HoldsCell(const Box& box, std::span<const Interval> cell) {
  return std::ranges::equal(box.intervals(), cell, [](const Interval& outer, const Interval& in) {
    return outer.begin <= in.begin && in.end <= outer.end;
  });
}

}  // namespace

TileMap::TileMap(const TensorTable& tensors, const Slicing& slicing, Side side, DeviceRank device)
    : tensors_(tensors), slicing_(slicing), side_(side), groups_(tensors.groups().size()) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int32_t group = static_cast<int32_t>(g);
    if (tensors.tensors_in_group(group) == 0) continue;
    GroupTile& tile = groups_[g];
    tile.boxes = tensors.TileOf(side, group, device);
    for (const Box& box : tile.boxes) {
      tile.box_offset.push_back(tile.bytes);
      tile.bytes += box.volume() * tensors.ItemBytesOf(side, group);
    }
  }
}

PackedSegments::PackedSegments(const TileMap& map) : map_(map), part_(map.groups_.size(), -1) {}

void PackedSegments::Enter(ClassIndex slice_class) {
  // A walk that comes back to this class goes on from here.
  if (slice_class_ != kNoClass) {
    places_[slice_class_ % kPlaces] = {slice_class_, tensor_, tensor_begin_};
  }
  slice_class_ = slice_class;
  class_bytes_ = map_.slicing().classes()[slice_class].bytes;
  for (size_t g = 0; g < part_.size(); ++g) {
    part_[g] = map_.slicing().grid(static_cast<int32_t>(g)).FindClass(slice_class);
  }
  const Place& place = places_[slice_class % kPlaces];
  const bool is_known = place.slice_class == slice_class;
  tensor_ = is_known ? place.tensor : 0;
  tensor_begin_ = is_known ? place.tensor_begin : 0;
  SkipTensors();
}

int64_t PackedSegments::TensorBytes() const { return grid_->bytes[part_[group_]]; }

void PackedSegments::SkipTensors() {
  const std::vector<int32_t>& group_of_tensor = map_.tensors().group_of_tensor();
  const int32_t count = static_cast<int32_t>(group_of_tensor.size());
  while (tensor_ < count) {
    group_ = group_of_tensor[tensor_];
    if (group_ != -1 && part_[group_] != -1) break;
    ++tensor_;
  }
  if (tensor_ == count) return;
  grid_ = &map_.slicing().grid(group_);
  cell_ = grid_->first[part_[group_]];
  cells_end_ = grid_->first[part_[group_] + 1];
  item_bytes_ = {.packed = map_.tensors().ItemBytesOf(Side::kDestination, group_),
                 .tile = map_.tensors().ItemBytesOf(map_.side(), group_)};
  const Slab& slab = map_.tensors().groups()[group_].slab;
  row_dimension_ = slab.row_dimension;
  row_pitch_ = slab.RowPitch(map_.side());
  box_ = 0;
}

void PackedSegments::FindTensor(int64_t offset) {
  if (offset < tensor_begin_) {
    tensor_ = 0;
    tensor_begin_ = 0;
    SkipTensors();
  }
  while (tensor_begin_ + TensorBytes() <= offset) {
    tensor_begin_ += TensorBytes();
    ++tensor_;
    SkipTensors();
  }
}

void PackedSegments::Seek(ClassIndex slice_class, int64_t offset) {
  // The walk goes on where Next has left it.
  if (slice_class == slice_class_ && offset == offset_) return;
  if (slice_class != slice_class_) Enter(slice_class);
  CHECK(offset >= 0 && offset <= class_bytes_) << offset << " of " << class_bytes_;
  offset_ = offset;
  if (offset == class_bytes_) return;
  FindTensor(offset);
  int64_t rest = offset - tensor_begin_;
  cell_ = grid_->first[part_[group_]];
  for (int64_t bytes = EnterCell(); bytes <= rest; bytes = EnterCell()) {
    rest -= bytes;
    ++cell_;
  }
  run_offset_ = rest % run_bytes_;
  int64_t row = rest / run_bytes_;
  for (int i = loop_count_ - 1; i >= 0; --i) {
    Loop& loop = loops_[i];
    loop.index = row % loop.length;
    row /= loop.length;
    row_begin_ += loop.index * loop.stride;
  }
}

Segment PackedSegments::Next(int64_t bytes_max) {
  if (offset_ == class_bytes_) return {.tensor = tensor_};
  const int64_t bytes = std::min(bytes_max, run_bytes_ - run_offset_);
  const Segment segment{.tensor = tensor_,
                        .tile_offset = row_begin_ + item_bytes_.InTile(run_offset_),
                        .bytes = bytes,
                        .tile_bytes = item_bytes_.InTile(bytes)};
  offset_ += segment.bytes;
  run_offset_ += segment.bytes;
  if (run_offset_ == run_bytes_ && offset_ < class_bytes_) NextRow();
  return segment;
}

void PackedSegments::NextRow() {
  run_offset_ = 0;
  for (int i = loop_count_ - 1; i >= 0; --i) {
    Loop& loop = loops_[i];
    row_begin_ += loop.stride;
    if (++loop.index < loop.length) return;
    // The loop is through: it begins again, and the next one outwards takes a step.
    row_begin_ -= loop.length * loop.stride;
    loop.index = 0;
  }
  NextCell();
}

void PackedSegments::NextCell() {
  if (++cell_ == cells_end_) {
    tensor_begin_ += TensorBytes();
    ++tensor_;
    SkipTensors();
  }
  EnterCell();
}

int64_t PackedSegments::EnterCell() {
  const std::span<Interval> cell = std::span(intervals_).first(grid_->cuts.size());
  grid_->CellIntervals(grid_->cells[cell_], cell);
  const Box& box = FindBox(cell);
  row_begin_ = map_.groups_[group_].box_offset[box_];
  run_bytes_ = item_bytes_.packed;
  run_offset_ = 0;
  loop_count_ = 0;
  // From the innermost dimension outwards, everything is one segment until the cell is narrower
  // than its box; the dimensions outside of that are loops.
  bool contiguous = true;
  int64_t stride = item_bytes_.tile;
  const int rank = static_cast<int>(cell.size());
  int64_t elements = 1;
  const auto pass_rows = [&](int dimension) {
    if (dimension != row_dimension_ || row_pitch_ == 1) return;
    stride *= row_pitch_;
    contiguous = false;
  };
  pass_rows(rank);
  for (int d = rank - 1; d >= 0; --d) {
    elements *= cell[d].length();
    row_begin_ += (cell[d].begin - box[d].begin) * stride;
    if (contiguous) {
      run_bytes_ *= cell[d].length();
      contiguous = cell[d] == box[d];
    } else if (cell[d].length() > 1) {
      loops_[loop_count_++] = {.length = cell[d].length(), .stride = stride};
    }
    stride *= box[d].length();
    pass_rows(d);
  }
  std::reverse(loops_.begin(), loops_.begin() + loop_count_);
  return elements * item_bytes_.packed;
}

// Cells never cross a box's edge. Both mostly ascend, so the search starts where the last one
// ended.
const Box& PackedSegments::FindBox(std::span<const Interval> cell) {
  const Tile& boxes = map_.groups_[group_].boxes;
  for (size_t tried = 0; tried < boxes.size(); ++tried) {
    const size_t candidate = (box_ + tried) % boxes.size();
    if (HoldsCell(boxes[candidate], cell)) {
      box_ = candidate;
      return boxes[candidate];
    }
  }
  CHECK(false) << "cell " << Box({cell.begin(), cell.end()}) << " of tensor " << tensor_
               << " is in no box of the tile";
  std::abort();
}

}  // namespace crossmesh
