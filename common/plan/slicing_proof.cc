#include "common/plan/slicing_proof.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <utility>

#include <absl/container/flat_hash_map.h>
#include <absl/container/inlined_vector.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr std::array kSides = {Side::kSource, Side::kDestination};
constexpr int32_t kNoTile = 0;

size_t IndexOf(Side side) { return static_cast<size_t>(side); }
absl::string_view RoleName(Side side) { return side == Side::kSource ? "holder" : "receiver"; }

bool Contains(const Box& box, std::span<const Interval> cell) {
  for (size_t d = 0; d < cell.size(); ++d) {
    const Interval& outer = box[static_cast<int>(d)];
    if (cell[d].begin < outer.begin || cell[d].end > outer.end) return false;
  }
  return true;
}

// The tiles of one group, by device: equal tiles of either side have one index.
struct GroupTiles {
  std::vector<Tile> tiles;                        // tiles[kNoTile] is empty
  std::vector<int64_t> volume;                    // [tile]
  std::vector<uint32_t> last_box;                 // [tile]: where the last cell was found
  std::array<std::vector<int32_t>, 2> of_device;  // [side][device]
};

// The distinct tiles of a set's devices, of one side of the group in hand.
struct SetTiles {
  int32_t group = -1;  // for which the others hold
  int64_t first = 0;   // in a list of tiles
  int64_t count = 0;
  int64_t volume = 0;  // elements of the classes that the set needs
};

class SlicingProver {
 public:
  SlicingProver(const TensorTable& tensors, const Slicing& slicing,
                std::span<const DeviceRank> devices)
      : tensors_(tensors),
        slicing_(slicing),
        in_scope_(tensors.devices().size(), devices.empty()),
        scoped_(devices.begin(), devices.end()),
        set_tiles_{std::vector<SetTiles>(slicing.device_sets()),
                   std::vector<SetTiles>(slicing.device_sets())},
        elements_of_class_(slicing.classes().size(), 0),
        bytes_of_class_(slicing.classes().size(), 0),
        received_(tensors.devices().size(), 0) {
    for (const DeviceRank device : devices) in_scope_[device] = true;
    const size_t count = tensors.devices().size();
    memory_ = {.source_bytes = std::vector<int64_t>(count, 0),
               .destination_bytes = std::vector<int64_t>(count, 0),
               .moved_group = std::vector<int32_t>(count, -1)};
  }

  absl::StatusOr<TileFootprint> Prove() {
    RETURN_IF_ERROR(CheckSets());
    for (int32_t g = 0; g < static_cast<int32_t>(tensors_.groups().size()); ++g) {
      if (tensors_.tensors_in_group(g) > 0) RETURN_IF_ERROR(ProveGroup(g));
    }
    for (size_t c = 0; c < bytes_of_class_.size(); ++c) {
      if (bytes_of_class_[c] == slicing_.classes()[c].bytes) continue;
      return absl::InternalError(absl::StrCat("class ", c, ": expected ", bytes_of_class_[c],
                                              " bytes in its cells, found ",
                                              slicing_.classes()[c].bytes));
    }
    return std::move(memory_);
  }

 private:
  absl::Status CheckSets() const {
    if (slicing_.grids() != static_cast<int32_t>(tensors_.groups().size())) {
      return absl::InternalError(absl::StrCat("slicing: expected ", tensors_.groups().size(),
                                              " grids, found ", slicing_.grids()));
    }
    const auto devices = static_cast<DeviceRank>(tensors_.devices().size());
    for (int32_t set = 0; set < slicing_.device_sets(); ++set) {
      DeviceRank last = -1;
      for (const DeviceRank device : slicing_.device_set(set)) {
        if (device <= last || device >= devices) {
          return absl::InternalError(absl::StrCat("device set ", set,
                                                  ": expected ascending ranks below ", devices,
                                                  ", found ", device, " after ", last));
        }
        last = device;
      }
    }
    return absl::OkStatus();
  }

  absl::Status ProveGroup(int32_t group) {
    group_ = group;
    grid_ = &slicing_.grid(group);
    RETURN_IF_ERROR(CheckGrid());
    FindTiles();
    list_.clear();
    RETURN_IF_ERROR(CheckCells());
    RETURN_IF_ERROR(CheckCellsByClass());
    return CheckVolumes();
  }

  absl::Status CheckGrid() const {
    const Shape& shape = tensors_.groups()[group_].shape;
    if (static_cast<int>(grid_->cuts.size()) != shape.rank()) {
      return Bad(absl::StrCat(shape.rank(), " dimensions"), absl::StrCat(grid_->cuts.size()));
    }
    int64_t cells = 1;
    for (int d = 0; d < shape.rank(); ++d) {
      const std::vector<int64_t>& cuts = grid_->cuts[d];
      if (cuts.empty() || cuts.front() != 0 || cuts.back() != shape[d] ||
          std::adjacent_find(cuts.begin(), cuts.end(), std::greater_equal<>()) != cuts.end()) {
        return Bad(absl::StrCat("cuts ascending from 0 to ", shape[d], " in dimension ", d),
                   "others");
      }
      cells *= static_cast<int64_t>(cuts.size()) - 1;
    }
    if (cells != grid_->cell_count()) {
      return Bad(absl::StrCat(cells, " cells"), absl::StrCat(grid_->cell_count()));
    }
    return absl::OkStatus();
  }

  // Fills in tiles_ and accounts for their memory.
  void FindTiles() {
    tiles_ = {.tiles = {{}}, .volume = {0}, .last_box = {0}};
    absl::flat_hash_map<Tile, int32_t> index = {{Tile(), kNoTile}};
    const auto place = [&](Side side, DeviceRank device, Tile tile) {
      const auto [found, added] =
          index.try_emplace(std::move(tile), static_cast<int32_t>(tiles_.tiles.size()));
      if (added) {
        tiles_.tiles.push_back(found->first);
        tiles_.volume.push_back(Volume(found->first));
        tiles_.last_box.push_back(0);
      }
      tiles_.of_device[IndexOf(side)][device] = found->second;
    };
    for (const Side side : kSides) {
      tiles_.of_device[IndexOf(side)].assign(tensors_.devices().size(), kNoTile);
      for (const DeviceRank d : scoped_) place(side, d, tensors_.TileOf(side, group_, d));
      // A few devices are looked up one by one; of all of them the layout gives the tiles at once.
      if (!scoped_.empty()) continue;
      const Placement& placement = tensors_.PlacementOf(side, group_);
      std::vector<Tile> tiles =
          placement.layout.Tiles(placement.mesh, tensors_.groups()[group_].shape);
      const auto& slots = tensors_.slots(side, tensors_.placement_of(side, group_));
      for (size_t s = 0; s < slots.size(); ++s) place(side, slots[s], std::move(tiles[s]));
    }
    CountMemory();
  }

  void CountMemory() {
    const int64_t tensors = tensors_.tensors_in_group(group_);
    const int64_t source_bytes = tensors_.ItemBytesOf(Side::kSource, group_) * tensors;
    const int64_t destination_bytes = tensors_.ItemBytesOf(Side::kDestination, group_) * tensors;
    const bool is_converted = tensors_.conversion_of(group_) != kNoConversion;
    for (size_t d = 0; d < in_scope_.size(); ++d) {
      const int32_t source = tiles_.of_device[IndexOf(Side::kSource)][d];
      const int32_t destination = tiles_.of_device[IndexOf(Side::kDestination)][d];
      memory_.source_bytes[d] += tiles_.volume[source] * source_bytes;
      memory_.destination_bytes[d] += tiles_.volume[destination] * destination_bytes;
      if (source != destination || is_converted) memory_.moved_group[d] = group_;
    }
  }

  // Row by row, like an odometer.
  absl::Status CheckCells() {
    const int rank = static_cast<int>(grid_->cuts.size());
    absl::InlinedVector<size_t, 4> index(rank, 0);
    absl::InlinedVector<Interval, 4> cell(rank);
    for (int d = 0; d < rank && grid_->cell_count() > 0; ++d) cell[d] = IntervalAt(d, 0);
    for (int64_t i = 0; i < grid_->cell_count(); ++i) {
      const ClassIndex c = grid_->class_of_cell[i];
      if (c != kNoClass) RETURN_IF_ERROR(CheckCell(c, cell));
      for (int d = rank - 1; d >= 0; --d) {
        // A dimension has one interval fewer than cuts.
        const bool wraps = ++index[d] + 1 == grid_->cuts[d].size();
        if (wraps) index[d] = 0;
        cell[d] = IntervalAt(d, index[d]);
        if (!wraps) break;
      }
    }
    return absl::OkStatus();
  }

  Interval IntervalAt(int dimension, size_t index) const {
    return {grid_->cuts[dimension][index], grid_->cuts[dimension][index + 1]};
  }

  absl::Status CheckCell(ClassIndex c, std::span<const Interval> cell) {
    if (c < 0 || c >= static_cast<ClassIndex>(slicing_.classes().size())) {
      return Bad(absl::StrCat("classes below ", slicing_.classes().size()), absl::StrCat(c));
    }
    const SliceClass& slice_class = slicing_.classes()[c];
    int64_t volume = 1;
    for (const Interval& interval : cell) volume *= interval.length();
    RETURN_IF_ERROR(CheckInside(Side::kSource, slice_class.holders, cell));
    RETURN_IF_ERROR(CheckInside(Side::kDestination, slice_class.receivers, cell));
    // Cells are disjoint and lie inside the tile, so a volume as large as the tile's means that it
    // is covered, each element once.
    set_tiles_[IndexOf(Side::kDestination)][slice_class.receivers].volume += volume;
    elements_of_class_[c] += volume;
    return absl::OkStatus();
  }

  absl::Status CheckInside(Side side, int32_t set, std::span<const Interval> cell) {
    SetTiles& of_set = set_tiles_[IndexOf(side)][set];
    if (of_set.group != group_) of_set = TilesOfSet(side, set);
    for (int64_t i = of_set.first; i < of_set.first + of_set.count; ++i) {
      if (!IsInTile(list_[i], cell)) return Outside(side, set, list_[i], cell);
    }
    return absl::OkStatus();
  }

  // A cell never crosses a box's edge, so it must lie within one box. Both mostly ascend.
  bool IsInTile(int32_t tile, std::span<const Interval> cell) {
    const Tile& boxes = tiles_.tiles[tile];
    uint32_t& last = tiles_.last_box[tile];
    for (size_t tried = 0; tried < boxes.size(); ++tried) {
      if (Contains(boxes[last], cell)) return true;
      if (++last == boxes.size()) last = 0;
    }
    return false;
  }

  SetTiles TilesOfSet(Side side, int32_t set) {
    const auto first = static_cast<int64_t>(list_.size());
    for (const DeviceRank device : slicing_.device_set(set)) {
      if (!in_scope_[device]) continue;
      const int32_t tile = tiles_.of_device[IndexOf(side)][device];
      // Neighbours in a set mostly have one tile; others are found by the sort below.
      if (static_cast<int64_t>(list_.size()) == first || list_.back() != tile) {
        list_.push_back(tile);
      }
    }
    std::sort(list_.begin() + first, list_.end());
    list_.erase(std::unique(list_.begin() + first, list_.end()), list_.end());
    return {.group = group_, .first = first, .count = static_cast<int64_t>(list_.size()) - first};
  }

  // The lists by class are the same cells, each in one place, with the right bytes.
  absl::Status CheckCellsByClass() {
    const size_t count = grid_->classes.size();
    const int64_t item_bytes = tensors_.ItemBytesOf(Side::kDestination, group_);
    if (grid_->first.size() != count + (grid_->cell_count() > 0 ? 1 : 0) ||
        grid_->bytes.size() != count ||
        (count > 0 && (grid_->first.front() != 0 ||
                       grid_->first.back() != static_cast<int64_t>(grid_->cells.size())))) {
      return Bad("cells listed by class", "lists of other lengths");
    }
    for (size_t i = 0; i < count; ++i) {
      const ClassIndex c = grid_->classes[i];
      if (c < 0 || c >= static_cast<ClassIndex>(slicing_.classes().size()) ||
          (i > 0 && c <= grid_->classes[i - 1]) || grid_->first[i] >= grid_->first[i + 1]) {
        return Bad("classes listed ascending, each with a cell", absl::StrCat("class ", c));
      }
      for (int32_t k = grid_->first[i]; k < grid_->first[i + 1]; ++k) {
        const int32_t cell = grid_->cells[k];
        if (cell < 0 || cell >= grid_->cell_count() || grid_->class_of_cell[cell] != c ||
            (k > grid_->first[i] && cell <= grid_->cells[k - 1])) {
          return Bad(absl::StrCat("cells of class ", c, " listed ascending"),
                     absl::StrCat("cell ", cell));
        }
      }
      if (slicing_.classes()[c].conversion != tensors_.conversion_of(group_)) {
        return Bad(absl::StrCat("conversion ", tensors_.conversion_of(group_), " of class ", c),
                   absl::StrCat(slicing_.classes()[c].conversion));
      }
      // Taken out, so that the next group counts from 0 without a pass over all classes.
      const int64_t bytes = std::exchange(elements_of_class_[c], 0) * item_bytes;
      if (grid_->bytes[i] != bytes) {
        return Bad(absl::StrCat(bytes, " bytes of class ", c), absl::StrCat(grid_->bytes[i]));
      }
      bytes_of_class_[c] += bytes * tensors_.tensors_in_group(group_);
    }
    const auto listed =
        std::ranges::count_if(grid_->class_of_cell, [](ClassIndex c) { return c != kNoClass; });
    if (listed != static_cast<int64_t>(grid_->cells.size())) {
      return Bad(absl::StrCat(listed, " cells listed by class"), absl::StrCat(grid_->cells.size()));
    }
    return absl::OkStatus();
  }

  absl::Status CheckVolumes() {
    for (int32_t set = 0; set < slicing_.device_sets(); ++set) {
      const SetTiles& of_set = set_tiles_[IndexOf(Side::kDestination)][set];
      if (of_set.group != group_) continue;
      for (const DeviceRank device : slicing_.device_set(set)) received_[device] += of_set.volume;
    }
    for (size_t d = 0; d < received_.size(); ++d) {
      const int64_t received = std::exchange(received_[d], 0);
      const int32_t tile = tiles_.of_device[IndexOf(Side::kDestination)][d];
      if (!in_scope_[d] || received == tiles_.volume[tile]) continue;
      return absl::InternalError(absl::StrCat(
          Name(), ", device ", ToString(tensors_.devices()[d]), ": expected ", tiles_.volume[tile],
          " elements of its destination tile in the classes it needs, found ", received));
    }
    return absl::OkStatus();
  }

  std::string Name() const { return tensors_.NameOf(group_); }

  absl::Status Bad(absl::string_view expected, absl::string_view found) const {
    return absl::InternalError(
        absl::StrCat("slices of ", Name(), ": expected ", expected, ", found ", found));
  }

  absl::Status Outside(Side side, int32_t set, int32_t tile, std::span<const Interval> cell) const {
    DeviceRank device = -1;
    for (const DeviceRank d : slicing_.device_set(set)) {
      if (in_scope_[d] && tiles_.of_device[IndexOf(side)][d] == tile) device = d;
    }
    const Box box(absl::InlinedVector<Interval, 4>(cell.begin(), cell.end()));
    return absl::InternalError(
        absl::StrCat(Name(), ", box ", ToString(box), ": expected inside the tile of its ",
                     RoleName(side), " ", ToString(tensors_.devices()[device]), ", found outside"));
  }

  const TensorTable& tensors_;
  const Slicing& slicing_;
  std::vector<bool> in_scope_;  // [device]
  const std::vector<DeviceRank> scoped_;
  TileFootprint memory_;

  // The group in hand.
  int32_t group_ = 0;
  const GroupGrid* grid_ = nullptr;
  GroupTiles tiles_;
  std::array<std::vector<SetTiles>, 2> set_tiles_;  // [side][set]
  std::vector<int32_t> list_;                       // tiles of all SetTiles
  std::vector<int64_t> elements_of_class_;          // [class]
  std::vector<int64_t> bytes_of_class_;             // [class], of all groups
  std::vector<int64_t> received_;                   // [device]
};

}  // namespace

absl::StatusOr<TileFootprint> ProveSlicing(const TensorTable& tensors, const Slicing& slicing,
                                           std::span<const DeviceRank> devices) {
  return SlicingProver(tensors, slicing, devices).Prove();
}

absl::Status ProveInPlace(const TensorTable& tensors, const TileFootprint& memory) {
  for (size_t d = 0; d < memory.moved_group.size(); ++d) {
    if (memory.source_bytes[d] == 0 || memory.destination_bytes[d] == 0) continue;
    if (memory.moved_group[d] == -1) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "device ", ToString(tensors.devices()[d]), ", ", tensors.NameOf(memory.moved_group[d]),
        ": expected the same tile, of the same type, on both sides, since source and destination "
        "are one storage "
        "that is written in place, found others"));
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
