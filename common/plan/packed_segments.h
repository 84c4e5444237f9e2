#pragma once

#include "common/mesh/box.h"
#include "common/mesh/layout.h"
#include "common/mesh/shape.h"
#include "common/plan/slicing.h"
#include "common/plan/tensor_table.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
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
  Side side() const { return side_; }

 private:
  friend class PackedSegments;
  struct GroupTile {
    Tile boxes;
    std::vector<int64_t> box_offset;  // bytes from the tile's start
    int64_t bytes = 0;
  };
  const TensorTable& tensors_;
  const Slicing& slicing_;
  const Side side_;
  std::vector<GroupTile> groups_;
};

// A contiguous piece of one tile's memory.
struct Segment {
  int32_t tensor = 0;       // index in the manifest
  int64_t tile_offset = 0;  // bytes from the start of the device's tile of that tensor
  int64_t bytes = 0;        // packed
  int64_t tile_bytes = 0;   // others only in source tiles of a class that is converted
};

// Walks the packed bytes of classes, from any offset, as segments in a device's tiles. The device
// must hold (source) or need (destination) them. Offsets in a class that is converted are those of
// whole elements. Segments are as long as memory allows within a cell. Allocates nothing after
// construction. Thread-compatible.
class PackedSegments {
 public:
  // Walks no class until Seek.
  explicit PackedSegments(const TileMap& map);

  // Goes to a packed offset of a class, 0 <= offset <= its bytes. Cost: linear in the cells of the
  // class in the tensor there, in groups when the last call was for another class, and in the
  // tensors between there and the place where this class was left: to walk kPlaces classes turn by
  // turn costs no more than one. From the first tensor when going backwards.
  void Seek(ClassIndex slice_class, int64_t offset);
  int64_t offset() const { return offset_; }
  // The segment at the present offset, of at most `bytes_max` (> 0) bytes, and moves past it.
  // Zero bytes at the end of the class.
  Segment Next(int64_t bytes_max);

 private:
  static constexpr int kPlaces = 32;

  // Where a class was left.
  struct Place {
    ClassIndex slice_class = kNoClass;
    int32_t tensor = 0;
    int64_t tensor_begin = 0;
  };
  // Bytes of an element of the group in hand.
  struct ItemBytes {
    int64_t packed = 1;
    int64_t tile = 1;

    int64_t InTile(int64_t packed_bytes) const {
      return packed == tile ? packed_bytes : packed_bytes / packed * tile;
    }
  };
  // An outer dimension of the cell in hand: it has `length` times as many segments.
  struct Loop {
    int64_t length = 0;
    int64_t index = 0;
    int64_t stride = 0;  // bytes of the tile
  };

  // To the place where the class was left, or to its first byte.
  void Enter(ClassIndex slice_class);
  // Forwards or backwards, to the tensor that has the byte.
  void FindTensor(int64_t offset);
  int64_t TensorBytes() const;
  // Forwards to the first tensor with bytes of the class, from tensor_ on.
  void SkipTensors();
  // Computes loops and segments of the cell in hand; returns its bytes.
  int64_t EnterCell();
  // To the first row of the next cell, in this tensor or a later one.
  void NextCell();
  void NextRow();
  const Box& FindBox(std::span<const Interval> cell);

  const TileMap& map_;
  std::array<Place, kPlaces> places_;  // of a class: at its number modulo their count
  std::vector<int64_t> part_;          // [group]: index into its grid's classes, or -1
  ClassIndex slice_class_ = kNoClass;
  int64_t class_bytes_ = 0;
  int64_t offset_ = 0;

  // The position of offset_; at the end of the class, one before it.
  int32_t tensor_ = 0;
  int64_t tensor_begin_ = 0;  // packed offset of the tensor's first byte of the class
  const GroupGrid* grid_ = nullptr;
  int32_t group_ = 0;
  int32_t cell_ = 0;  // index into grid_->cells
  int32_t cells_end_ = 0;
  ItemBytes item_bytes_;
  int row_dimension_ = 0;  // rows of a tile that is one of several slabs lie apart
  int64_t row_pitch_ = 1;
  size_t box_ = 0;  // box of the tile that has the cell: where the next search starts
  std::array<Interval, Shape::kRankMax> intervals_;  // of the cell in hand
  int64_t row_begin_ = 0;                            // tile offset of the segment in hand
  int64_t run_bytes_ = 0;                            // packed, as run_offset_
  int64_t run_offset_ = 0;
  int loop_count_ = 0;
  std::array<Loop, Shape::kRankMax> loops_;  // outermost first
};

}  // namespace crossmesh
