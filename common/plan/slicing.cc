#include "common/plan/slicing.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/plan/placed_tiles.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include <absl/container/inlined_vector.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// An interval that neither side cuts, and the offsets of its parts in both sides' tile tables.
struct MergedInterval {
  int64_t begin = 0;
  int64_t length = 0;
  int64_t source = 0;
  int64_t destination = 0;
};

// A group with both sides' tiles and the merged cuts of each dimension.
struct GroupSides {
  int32_t group = 0;
  const PlacedTiles* source = nullptr;
  const PlacedTiles* destination = nullptr;
  std::vector<std::vector<MergedInterval>> dimensions;
  int64_t cells = 1;
};

std::vector<MergedInterval> Merge(const GroupSides& sides, int dimension, int64_t length) {
  const std::vector<Cut> a = sides.source->Cuts(dimension, length);
  const std::vector<Cut> b = sides.destination->Cuts(dimension, length);
  const int64_t a_stride = sides.source->stride(dimension);
  const int64_t b_stride = sides.destination->stride(dimension);
  std::vector<MergedInterval> merged;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const int64_t a_end = i + 1 < a.size() ? a[i + 1].begin : length;
    const int64_t b_end = j + 1 < b.size() ? b[j + 1].begin : length;
    const int64_t begin = std::max(a[i].begin, b[j].begin);
    const int64_t end = std::min(a_end, b_end);
    merged.push_back({begin, end - begin, a[i].part * a_stride, b[j].part * b_stride});
    if (a_end == end) ++i;
    if (b_end == end) ++j;
  }
  return merged;
}

std::vector<int32_t> GroupsByFirstTensor(const TensorTable& tensors) {
  std::vector<bool> seen(tensors.groups().size(), false);
  std::vector<int32_t> order;
  for (const int32_t group : tensors.group_of_tensor()) {
    if (group == -1 || seen[group]) continue;
    seen[group] = true;
    order.push_back(group);
  }
  return order;
}

// The tiles of all placements in use. Those of sources are interned first, so that holder sets have
// the lowest indices.
class AllTiles {
 public:
  static absl::StatusOr<AllTiles> Create(const TensorTable& tensors,
                                         std::span<const int32_t> groups) {
    AllTiles all(tensors);
    for (const Side side : {Side::kSource, Side::kDestination}) {
      for (const int32_t group : groups) RETURN_IF_ERROR(all.Add(side, group));
      if (side == Side::kSource) all.holder_sets_ = all.sets_.size();
    }
    return all;
  }

  const PlacedTiles& Of(Side side, int32_t group) const { return tiles_.at(KeyOf(side, group)); }
  int32_t holder_sets() const { return holder_sets_; }
  IdSets& sets() { return sets_; }

 private:
  // The rank is a part of the key for the sake of explicit layouts without any box.
  struct Key {
    Side side;
    int32_t placement;
    int rank;
    auto operator<=>(const Key&) const = default;
  };

  explicit AllTiles(const TensorTable& tensors) : tensors_(tensors) {}

  Key KeyOf(Side side, int32_t group) const {
    return {side, tensors_.placement_of(side, group), tensors_.groups()[group].shape.rank()};
  }

  absl::Status Add(Side side, int32_t group) {
    const Key key = KeyOf(side, group);
    if (tiles_.contains(key)) return absl::OkStatus();
    ASSIGN_OR_RETURN(PlacedTiles tiles,
                     PlacedTiles::Create(tensors_.PlacementOf(side, group),
                                         tensors_.slots(side, key.placement), key.rank, sets_));
    tiles_.emplace(key, std::move(tiles));
    return absl::OkStatus();
  }

  const TensorTable& tensors_;
  IdSets sets_;
  std::map<Key, PlacedTiles> tiles_;
  int32_t holder_sets_ = 0;
};

absl::StatusOr<std::vector<GroupSides>> MergeGroups(const TensorTable& tensors,
                                                    std::span<const int32_t> groups,
                                                    const AllTiles& tiles) {
  std::vector<GroupSides> merged;
  int64_t cells = 0;
  for (const int32_t group : groups) {
    GroupSides sides{.group = group,
                     .source = &tiles.Of(Side::kSource, group),
                     .destination = &tiles.Of(Side::kDestination, group)};
    const Shape& shape = tensors.groups()[group].shape;
    if (shape.elements() == 0) sides.cells = 0;
    for (int d = 0; d < shape.rank(); ++d) {
      sides.dimensions.push_back(Merge(sides, d, shape[d]));
      sides.cells *= static_cast<int64_t>(sides.dimensions.back().size());
      // Checked dimension by dimension, before the product can overflow.
      if (cells + sides.cells > Slicing::kCellsMax) {
        return absl::ResourceExhaustedError(
            absl::StrCat(tensors.NameOf(group), ": expected at most ", Slicing::kCellsMax,
                         " slices of all groups together, found more"));
      }
    }
    cells += sides.cells;
    merged.push_back(std::move(sides));
  }
  return merged;
}

}  // namespace

Box GroupGrid::CellBox(int64_t cell) const {
  absl::InlinedVector<Interval, 4> intervals(cuts.size());
  CellIntervals(cell, intervals);
  return Box(std::move(intervals));
}

void GroupGrid::CellIntervals(int64_t cell, std::span<Interval> intervals) const {
  for (int d = static_cast<int>(cuts.size()) - 1; d >= 0; --d) {
    const int64_t count = static_cast<int64_t>(cuts[d].size()) - 1;
    const int64_t at = cell % count;
    cell /= count;
    intervals[d] = {cuts[d][at], cuts[d][at + 1]};
  }
}

int64_t GroupGrid::FindClass(ClassIndex slice_class) const {
  const auto found = std::lower_bound(classes.begin(), classes.end(), slice_class);
  if (found == classes.end() || *found != slice_class) return -1;
  return found - classes.begin();
}

// Gives every cell of a group its class, row by row, and lists the cells by class.
class SlicingBuilder {
 public:
  SlicingBuilder(const TensorTable& tensors, Slicing& slicing, const Slicing::Scope& scope)
      : tensors_(tensors),
        slicing_(slicing),
        in_scope_(slicing.sets_.size(), scope.devices.empty()) {
    std::vector<bool> device_in_scope(tensors.devices().size(), false);
    for (const DeviceRank device : scope.devices) device_in_scope[device] = true;
    for (int32_t set = 0; set < slicing.sets_.size() && !scope.devices.empty(); ++set) {
      in_scope_[set] =
          std::ranges::any_of(slicing.sets_[set], [&](DeviceRank d) { return device_in_scope[d]; });
    }
    const std::span<const DeviceRank> none;
    empty_set_ = slicing.sets_.Find(none).value_or(-1);
  }

  absl::Status AddGroup(const GroupSides& sides) {
    GroupGrid& grid = slicing_.grids_[sides.group];
    for (size_t d = 0; d < sides.dimensions.size(); ++d) {
      std::vector<int64_t>& cuts = grid.cuts.emplace_back();
      for (const MergedInterval& interval : sides.dimensions[d]) cuts.push_back(interval.begin);
      cuts.push_back(tensors_.groups()[sides.group].shape[static_cast<int>(d)]);
    }
    if (sides.cells == 0) return absl::OkStatus();
    grid.class_of_cell.reserve(sides.cells);
    item_bytes_ = tensors_.ItemBytesOf(Side::kDestination, sides.group);
    conversion_ = tensors_.conversion_of(sides.group);
    RETURN_IF_ERROR(AddRows(sides, grid));
    ListByClass(tensors_.tensors_in_group(sides.group), grid);
    return absl::OkStatus();
  }

 private:
  // Visits the rows of cells in row-major order: all dimensions but the last, like an odometer.
  absl::Status AddRows(const GroupSides& sides, GroupGrid& grid) {
    const int rank = static_cast<int>(sides.dimensions.size());
    static const std::vector<MergedInterval> kScalar = {{.length = 1}};
    const std::vector<MergedInterval>& columns = rank == 0 ? kScalar : sides.dimensions.back();
    absl::InlinedVector<size_t, 4> index(std::max(rank - 1, 0), 0);
    while (true) {
      MergedInterval row{.length = item_bytes_};
      for (int d = 0; d < rank - 1; ++d) {
        const MergedInterval& interval = sides.dimensions[d][index[d]];
        row.length *= interval.length;
        row.source += interval.source;
        row.destination += interval.destination;
      }
      RETURN_IF_ERROR(AddRow(sides, row, columns, grid));
      RETURN_IF_ERROR(CheckClasses(sides.group));
      int d = rank - 2;
      while (d >= 0 && ++index[d] == sides.dimensions[d].size()) index[d--] = 0;
      if (d < 0) return absl::OkStatus();
    }
  }

  absl::Status AddRow(const GroupSides& sides, const MergedInterval& row,
                      const std::vector<MergedInterval>& columns, GroupGrid& grid) {
    const int32_t* const source_sets = sides.source->set_of_tile().data() + row.source;
    const int32_t* const destination_sets =
        sides.destination->set_of_tile().data() + row.destination;
    const int32_t first_column = slicing_.ColumnOf(0, conversion_);
    for (const MergedInterval& column : columns) {
      const int32_t holders = source_sets[column.source];
      const int32_t receivers = destination_sets[column.destination];
      if (receivers == empty_set_ || !(in_scope_[holders] || in_scope_[receivers])) {
        grid.class_of_cell.push_back(kNoClass);
        continue;
      }
      if (holders == empty_set_) return NoHolder(sides.group, receivers, grid);
      ClassIndex& found = slicing_.class_of_sets_.At(holders, first_column + receivers);
      if (found == kNoClass) found = AddClass(holders, receivers);
      grid.class_of_cell.push_back(found);
      if (cells_of_class_[found]++ == 0) grid.classes.push_back(found);
      bytes_of_class_[found] += row.length * column.length;
    }
    return absl::OkStatus();
  }

  // After each row, which has few cells beside that many classes.
  absl::Status CheckClasses(int32_t group) const {
    if (std::ssize(slicing_.classes_) <= Slicing::kClassesMax) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat(tensors_.NameOf(group), ": expected at most ", Slicing::kClassesMax,
                     " classes of slices of all groups together, found more"));
  }

  ClassIndex AddClass(int32_t holders, int32_t receivers) {
    slicing_.classes_.push_back(
        {.holders = holders, .receivers = receivers, .conversion = conversion_});
    bytes_of_class_.push_back(0);
    cells_of_class_.push_back(0);
    return static_cast<ClassIndex>(slicing_.classes_.size()) - 1;
  }

  // Turns the counts of a finished group into its lists, and leaves zeros for the next group.
  void ListByClass(int64_t tensors, GroupGrid& grid) {
    // New classes are numbered as they are met: a group that shares none is sorted already.
    if (!std::ranges::is_sorted(grid.classes)) std::ranges::sort(grid.classes);
    grid.first.reserve(grid.classes.size() + 1);
    grid.bytes.reserve(grid.classes.size());
    int32_t first = 0;
    for (const ClassIndex c : grid.classes) {
      grid.first.push_back(first);
      grid.bytes.push_back(bytes_of_class_[c]);
      slicing_.classes_[c].bytes += bytes_of_class_[c] * tensors;
      bytes_of_class_[c] = 0;
      // From here on the counts say where the class's next cell goes in the list.
      first += std::exchange(cells_of_class_[c], first);
    }
    grid.first.push_back(first);
    grid.cells.resize(first);
    for (size_t cell = 0; cell < grid.class_of_cell.size(); ++cell) {
      const ClassIndex c = grid.class_of_cell[cell];
      if (c != kNoClass) grid.cells[cells_of_class_[c]++] = static_cast<int32_t>(cell);
    }
    for (const ClassIndex c : grid.classes) cells_of_class_[c] = 0;
  }

  absl::Status NoHolder(int32_t group, int32_t receivers, const GroupGrid& grid) const {
    // CellBox divides by the cuts, which are complete, so it serves for the cell in hand as well.
    const Box box = grid.CellBox(static_cast<int64_t>(grid.class_of_cell.size()));
    return absl::InvalidArgumentError(
        absl::StrCat("box ", ToString(box), " of ", tensors_.NameOf(group), ", needed by device ",
                     ToString(tensors_.devices()[slicing_.sets_[receivers].front()]),
                     ": expected a source slot that holds it, found none"));
  }

  const TensorTable& tensors_;
  Slicing& slicing_;
  std::vector<uint8_t> in_scope_;  // [set]
  int32_t empty_set_ = -1;
  // Of the group in hand; the last two by class.
  int64_t item_bytes_ = 1;
  ConversionIndex conversion_ = kNoConversion;
  std::vector<int64_t> bytes_of_class_;
  std::vector<int32_t> cells_of_class_;
};

absl::StatusOr<Slicing> Slicing::Create(const TensorTable& tensors, const Scope& scope) {
  for (const DeviceRank device : scope.devices) {
    CHECK(device >= 0 && device < static_cast<DeviceRank>(tensors.devices().size())) << device;
  }
  const std::vector<int32_t> groups = GroupsByFirstTensor(tensors);
  ASSIGN_OR_RETURN(AllTiles tiles, AllTiles::Create(tensors, groups));
  ASSIGN_OR_RETURN(const std::vector<GroupSides> merged, MergeGroups(tensors, groups, tiles));
  int64_t cells = 0;
  for (const GroupSides& sides : merged) cells += sides.cells;

  const int32_t holder_sets = tiles.holder_sets();
  const int64_t columns = (std::ssize(tensors.conversions()) + 1) * tiles.sets().size();
  Slicing slicing(std::move(tiles.sets()), ClassTable(holder_sets, columns, cells));
  slicing.grids_.resize(tensors.groups().size());
  SlicingBuilder builder(tensors, slicing, scope);
  for (const GroupSides& sides : merged) RETURN_IF_ERROR(builder.AddGroup(sides));
  return slicing;
}

Slicing Slicing::WithOnly(absl::FunctionRef<bool(DeviceRank)> holds,
                          absl::FunctionRef<bool(DeviceRank)> receives) const {
  IdSets sets;
  std::vector<DeviceRank> kept;
  const auto filter = [&](absl::FunctionRef<bool(DeviceRank)> is_kept) {
    std::vector<int32_t> filtered(sets_.size());
    for (int32_t set = 0; set < sets_.size(); ++set) {
      kept.clear();
      std::ranges::copy_if(sets_[set], std::back_inserter(kept), is_kept);
      filtered[set] = sets.Intern(kept);
    }
    return filtered;
  };
  const std::vector<int32_t> holders = filter(holds);
  const std::vector<int32_t> receivers = filter(receives);
  Slicing some(std::move(sets), ClassTable(0, 0, 0));
  some.classes_ = classes_;
  for (SliceClass& slice_class : some.classes_) {
    slice_class.holders = holders[slice_class.holders];
    slice_class.receivers = receivers[slice_class.receivers];
  }
  some.grids_ = grids_;
  return some;
}

ClassIndex Slicing::Find(std::span<const DeviceRank> holders, std::span<const DeviceRank> receivers,
                         ConversionIndex conversion) const {
  const std::optional<int32_t> holder_set = sets_.Find(holders);
  const std::optional<int32_t> receiver_set = sets_.Find(receivers);
  if (!holder_set.has_value() || !receiver_set.has_value()) return kNoClass;
  return class_of_sets_.Find(*holder_set, ColumnOf(*receiver_set, conversion));
}

}  // namespace crossmesh
