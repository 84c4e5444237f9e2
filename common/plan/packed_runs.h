#pragma once

#include "common/mesh/box.h"
#include "common/mesh/layout.h"
#include "common/mesh/shape.h"
#include "common/plan/slicing.h"
#include "common/plan/tensor_table.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace crossmesh {

// How one device's tiles lie in memory on one side: tensors in manifest order, each tile's boxes in
// order, row-major. Offsets are within the tile. Immutable; keeps references to its arguments.
class TileMap {
 public:
  // `device` may hold nothing. Cost: linear in groups and in the parts of one side's dimensions.
  TileMap(const TensorTable& tensors, const Slicing& slicing, Side side, DeviceRank device);

  const TensorTable& tensors() const { return tensors_; }
  const Slicing& slicing() const { return slicing_; }
  // Bytes of the device's tile of any tensor of `group`.
  int64_t tile_bytes(int32_t group) const { return groups_[group].bytes; }

 private:
  friend class PackedRuns;
  struct GroupTile {
    Tile boxes;
    std::vector<int64_t> box_offset;  // bytes from the tile's start
    int64_t bytes = 0;
  };
  const TensorTable& tensors_;
  const Slicing& slicing_;
  std::vector<GroupTile> groups_;
};

// A contiguous piece of one tile's memory.
struct Run {
  int32_t tensor = 0;       // index in the manifest
  int64_t tile_offset = 0;  // bytes from the start of the device's tile of that tensor
  int64_t bytes = 0;
};

// Walks the packed bytes of a class, from any offset, as runs in a device's tiles. The device must
// hold (source) or need (destination) the class. Runs are as long as memory allows within a cell.
// Allocates nothing after construction, for tensors of up to four dimensions. Thread-compatible.
class PackedRuns {
 public:
  // Walks no class until Begin.
  explicit PackedRuns(const TileMap& map);

  // Goes to the first byte of a class. Cost: linear in groups and in the tensors before that byte.
  void Begin(ClassIndex slice_class);
  // kNoClass before Begin.
  ClassIndex slice_class() const { return slice_class_; }

  // Goes to a packed offset, 0 <= offset <= bytes of the class. Cost: linear in the tensors between
  // here and there going forwards, from the first tensor going backwards; and in the cells of the
  // class in the last one.
  void Seek(int64_t offset);
  int64_t offset() const { return offset_; }
  // The run at the present offset, of at most `bytes_max` (> 0) bytes, and moves behind it. Zero
  // bytes at the end of the class.
  Run Next(int64_t bytes_max);

 private:
  // An outer dimension of the cell in hand: it has `length` times as many runs.
  struct Loop {
    int64_t length = 0;
    int64_t index = 0;
    int64_t stride = 0;  // bytes of the tile
  };

  int64_t TensorBytes() const;
  // Forwards to the first tensor with bytes of the class, from tensor_ on.
  void SkipTensors();
  // Computes loops and runs of the cell in hand; returns its bytes.
  int64_t EnterCell();
  // To the first row of the next cell, in this tensor or a later one.
  void NextCell();
  void NextRow();
  const Box& FindBox(const Box& cell);

  const TileMap& map_;
  std::vector<int64_t> place_;  // [group]: index into its grid's classes, or -1
  ClassIndex slice_class_ = kNoClass;
  int64_t class_bytes_ = 0;
  int64_t offset_ = 0;

  // The position of offset_. All but tensor_ are meaningless behind the last tensor.
  int32_t tensor_ = 0;
  int64_t tensor_begin_ = 0;  // packed offset of the tensor's first byte of the class
  const GroupGrid* grid_ = nullptr;
  int32_t group_ = 0;
  int32_t cell_ = 0;  // index into grid_->cells
  int32_t cells_end_ = 0;
  size_t box_ = 0;         // box of the tile that has the cell: where the next search starts
  int64_t row_begin_ = 0;  // tile offset of the run in hand
  int64_t run_bytes_ = 0;
  int64_t run_offset_ = 0;
  int loop_count_ = 0;
  std::array<Loop, Shape::kRankMax> loops_;  // outermost first
};

}  // namespace crossmesh
