#pragma once

#include "common/mesh/box.h"
#include "common/plan/class_table.h"
#include "common/plan/id_sets.h"
#include "common/plan/tensor_table.h"

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// All slices of a request with the same holders and the same receivers that are converted alike, or
// not at all. A slice is a part of a tensor with one set of devices that hold it and one set that
// need it (arXiv 2211.05322 calls its transfer a unit task). The packed bytes of a class are its
// slices in manifest order; within a tensor its cells in row-major order; within a cell the
// elements in row-major order.
//
// Packed bytes are those of destination tiles: reading source tiles converts. Since a class
// that is converted has elements of one size, all that cuts classes at multiples of that, as chunks
// and leaves are cut, cuts none of its elements.
struct SliceClass {
  int32_t holders = 0;    // index of a device set: source slots that hold it
  int32_t receivers = 0;  // index of a device set: destination slots that need it
  int64_t bytes = 0;      // packed, over all tensors
  ConversionIndex conversion = kNoConversion;
};

// The slices of one tensor group: the grid of both sides' cuts, and the class of every cell. A
// group without tensors has an empty one.
//
// Example: rows cut at 0,5,10 on the source and at 0,4,8,10 on the destination give the cuts
// 0,4,5,8,10, so four cells; the second, rows 4 to 5, goes from slot 0 to slot 1.
struct GroupGrid {
  std::vector<std::vector<int64_t>> cuts;  // [dimension], ascending, from 0 to its length
  std::vector<ClassIndex> class_of_cell;   // row-major; kNoClass: no device in scope needs it

  // The same by class, in ascending order of classes: cells[first[i] .. first[i+1]) are those of
  // classes[i], ascending, with bytes[i] bytes in every tensor of the group.
  std::vector<ClassIndex> classes;
  std::vector<int32_t> first;
  std::vector<int32_t> cells;
  std::vector<int64_t> bytes;

  Box CellBox(int64_t cell) const;
  // The same, into an interval for each dimension.
  void CellIntervals(int64_t cell, std::span<Interval> intervals) const;
  int64_t cell_count() const { return static_cast<int64_t>(class_of_cell.size()); }
  // Index into `classes`, or -1 when the class has no cell here. Cost: logarithmic.
  int64_t FindClass(ClassIndex slice_class) const;
};

// Slices and classes of a table, found by merging cut lists: tile pairs are never enumerated.
// Classes are numbered by the first tensor group (in order of the groups' first tensors) and cell
// in which they appear. Immutable.
class Slicing {
 public:
  struct Scope {
    // Only cells that one of these devices holds or needs; empty: all. Packing orders do not depend
    // on the scope, class numbers do.
    std::vector<DeviceRank> devices;
  };

  static constexpr int64_t kCellsMax = int64_t{1} << 26;
  // A class takes some hundred bytes. Twice as many as a plan may have relays: classes that no
  // device receives from another one take none.
  static constexpr int64_t kClassesMax = int64_t{1} << 22;

  // InvalidArgument when a needed box has no holder (named with group and device).
  // ResourceExhausted when the groups have more than kCellsMax cells, or kClassesMax classes,
  // together. Cost: linear in cells of all groups (tensors of a group share theirs), plus slots.
  static absl::StatusOr<Slicing> Create(const TensorTable& tensors, const Scope& scope = {});

  const std::vector<SliceClass>& classes() const { return classes_; }
  // Ascending ranks.
  std::span<const DeviceRank> device_set(int32_t set) const { return sets_[set]; }
  int32_t device_sets() const { return sets_.size(); }
  std::span<const DeviceRank> holders(ClassIndex c) const {
    return device_set(classes_[c].holders);
  }
  std::span<const DeviceRank> receivers(ClassIndex c) const {
    return device_set(classes_[c].receivers);
  }
  // The class with exactly these sets (ascending) and this conversion, or kNoClass.
  ClassIndex Find(std::span<const DeviceRank> holders, std::span<const DeviceRank> receivers,
                  ConversionIndex conversion = kNoConversion) const;

  // The same classes, by the same numbers, with only some of their holders and receivers; maybe
  // with none. For routes of a part of what a plan has to move: Find finds none of them. Cost: that
  // of a copy.
  Slicing WithOnly(absl::FunctionRef<bool(DeviceRank)> holds,
                   absl::FunctionRef<bool(DeviceRank)> receives) const;

  const GroupGrid& grid(int32_t group) const { return grids_[group]; }
  int32_t grids() const { return static_cast<int32_t>(grids_.size()); }

  // Of all but classes and grids, as heap_bytes.h counts.
  int64_t heap_bytes_of_sets() const { return sets_.heap_bytes() + class_of_sets_.heap_bytes(); }

 private:
  friend class SlicingBuilder;

  Slicing(IdSets sets, ClassTable table)
      : sets_(std::move(sets)), class_of_sets_(std::move(table)) {}

  // Of the table below: receiver sets without conversion come first, then those with each.
  int32_t ColumnOf(int32_t receivers, ConversionIndex conversion) const {
    return (conversion + 1) * sets_.size() + receivers;
  }

  IdSets sets_;
  ClassTable class_of_sets_;  // rows: holder sets
  std::vector<SliceClass> classes_;
  std::vector<GroupGrid> grids_;
};

}  // namespace crossmesh
