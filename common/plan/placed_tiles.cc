#include "common/plan/placed_tiles.h"

#include "common/base/checked_math.h"
#include "common/base/status_macros.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include <absl/container/inlined_vector.h>
#include <absl/functional/function_ref.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

using Emit = absl::FunctionRef<void(int64_t tile, DeviceRank device)>;

// Interns the devices of each of `tiles` tiles. `enumerate` emits every (tile, device) once,
// devices ascending within a tile, and the same each time it is called.
std::vector<int32_t> InternTiles(int64_t tiles, absl::FunctionRef<void(Emit)> enumerate,
                                 IdSets& sets) {
  std::vector<int64_t> end(tiles + 1, 0);
  enumerate([&](int64_t tile, DeviceRank) { ++end[tile + 1]; });
  std::partial_sum(end.begin(), end.end(), end.begin());
  std::vector<DeviceRank> devices(end.back());
  // Until a tile's devices are in, its end is where they begin.
  enumerate([&](int64_t tile, DeviceRank device) { devices[end[tile]++] = device; });
  std::vector<int32_t> set_of_tile(tiles);
  int64_t begin = 0;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    set_of_tile[tile] = sets.Intern(std::span(devices).subspan(begin, end[tile] - begin));
    begin = end[tile];
  }
  return set_of_tile;
}

std::vector<int32_t> SlotsByDevice(std::span<const DeviceRank> slots) {
  std::vector<int32_t> order(slots.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return slots[a] < slots[b]; });
  return order;
}

// Calls `visit` with the sum of index * stride for all index tuples of the ranges, row-major.
void ForEachTuple(std::span<const std::pair<int64_t, int64_t>> ranges,
                  std::span<const int64_t> strides, absl::FunctionRef<void(int64_t)> visit,
                  int64_t base = 0) {
  if (ranges.empty()) return visit(base);
  for (int64_t i = ranges[0].first; i < ranges[0].second; ++i) {
    ForEachTuple(ranges.subspan(1), strides.subspan(1), visit, base + i * strides[0]);
  }
}

}  // namespace

absl::StatusOr<PlacedTiles> PlacedTiles::Create(const Placement& placement,
                                                std::span<const DeviceRank> slots, int rank,
                                                IdSets& sets) {
  PlacedTiles tiles(placement.layout, rank);
  RETURN_IF_ERROR(placement.layout.axes() != nullptr ? tiles.PlaceAxes(placement.mesh, slots, sets)
                                                     : tiles.PlaceBoxes(slots, sets));
  return tiles;
}

absl::StatusOr<int64_t> PlacedTiles::SetStrides(std::span<const int64_t> parts) {
  std::optional<int64_t> tuples = 1;
  for (int d = static_cast<int>(parts.size()) - 1; d >= 0; --d) {
    stride_[d] = *tuples;
    tuples = CheckedMultiply(*tuples, parts[d]);
    if (!tuples.has_value() || *tuples > kTuplesMax) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "grid of the tiles' edges: expected at most ", kTuplesMax, " cells, found more"));
    }
  }
  return *tuples;
}

absl::Status PlacedTiles::PlaceAxes(const Mesh& mesh, std::span<const DeviceRank> slots,
                                    IdSets& sets) {
  std::vector<std::vector<int>> axes;
  std::vector<int64_t> parts;
  for (const std::vector<std::string>& names : layout_.axes()->dimensions) {
    axes.emplace_back();
    axis_sizes_.emplace_back();
    parts.push_back(1);
    for (const std::string& name : names) {
      axes.back().push_back(*mesh.FindAxis(name));
      axis_sizes_.back().push_back(mesh.axes()[axes.back().back()].size);
      parts.back() *= axis_sizes_.back().back();
    }
  }
  ASSIGN_OR_RETURN(const int64_t tiles, SetStrides(parts));
  std::vector<int64_t> tile_of_slot(slots.size(), 0);
  for (size_t d = 0; d < axes.size(); ++d) {
    for (size_t slot = 0; slot < slots.size(); ++slot) {
      int64_t part = 0;
      for (size_t i = 0; i < axes[d].size(); ++i) {
        part = part * axis_sizes_[d][i] + mesh.Coordinate(static_cast<int64_t>(slot), axes[d][i]);
      }
      tile_of_slot[slot] += part * stride_[d];
    }
  }
  const std::vector<int32_t> order = SlotsByDevice(slots);
  set_of_tile_ = InternTiles(
      tiles,
      [&](Emit emit) {
        for (const int32_t slot : order) emit(tile_of_slot[slot], slots[slot]);
      },
      sets);
  return absl::OkStatus();
}

absl::Status PlacedTiles::PlaceBoxes(std::span<const DeviceRank> slots, IdSets& sets) {
  const std::vector<Tile>& tiles = layout_.tiles()->slots;
  const int rank = static_cast<int>(stride_.size());
  // After the last edge follows one more interval, which no device holds.
  begins_.assign(rank, {0});
  for (const Tile& tile : tiles) {
    for (const Box& box : tile) {
      for (int d = 0; d < rank && !box.empty(); ++d) {
        begins_[d].push_back(box[d].begin);
        begins_[d].push_back(box[d].end);
      }
    }
  }
  std::vector<int64_t> parts;
  for (std::vector<int64_t>& begins : begins_) {
    std::sort(begins.begin(), begins.end());
    begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
    parts.push_back(static_cast<int64_t>(begins.size()));
  }
  ASSIGN_OR_RETURN(const int64_t tuples, SetStrides(parts));
  // Before the tiles are listed: a short text can stand for more of them than memory holds.
  RETURN_IF_ERROR(CheckPainted());
  const std::vector<int32_t> order = SlotsByDevice(slots);
  const auto paint = [&](Emit emit) {
    absl::InlinedVector<std::pair<int64_t, int64_t>, 4> ranges(rank);
    for (const int32_t slot : order) {
      for (const Box& box : tiles[slot]) {
        if (box.empty()) continue;
        for (int d = 0; d < rank; ++d) ranges[d] = IndexRange(d, box[d]);
        ForEachTuple(ranges, stride_, [&](int64_t tile) { emit(tile, slots[slot]); });
      }
    }
  };
  set_of_tile_ = InternTiles(tuples, paint, sets);
  return absl::OkStatus();
}

absl::Status PlacedTiles::CheckPainted() const {
  int64_t painted = 0;
  for (const Tile& tile : layout_.tiles()->slots) {
    for (const Box& box : tile) {
      int64_t tuples = box.empty() ? 0 : 1;
      for (int d = 0; d < box.rank() && tuples > 0; ++d) {
        const auto [first, last] = IndexRange(d, box[d]);
        // At most kTuplesMax, as SetStrides has checked for all of them together.
        tuples *= last - first;
      }
      painted += tuples;
      if (painted > kPaintedMax) {
        return absl::ResourceExhaustedError(
            absl::StrCat("cells of all explicit boxes together: expected at most ", kPaintedMax,
                         ", found more"));
      }
    }
  }
  return absl::OkStatus();
}

std::pair<int64_t, int64_t> PlacedTiles::IndexRange(int dimension, Interval interval) const {
  const std::vector<int64_t>& begins = begins_[dimension];
  const auto at = [&](int64_t position) {
    return std::lower_bound(begins.begin(), begins.end(), position) - begins.begin();
  };
  return {at(interval.begin), at(interval.end)};
}

std::vector<Cut> PlacedTiles::Cuts(int dimension, int64_t length) const {
  std::vector<Cut> cuts;
  if (layout_.axes() != nullptr) {
    const std::vector<Interval> parts =
        PartsOfDimension(layout_.axes()->rule, length, axis_sizes_[dimension]);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (!parts[i].empty()) cuts.push_back({parts[i].begin, static_cast<int32_t>(i)});
    }
    return cuts;
  }
  const std::vector<int64_t>& begins = begins_[dimension];
  for (size_t i = 0; i < begins.size() && begins[i] < length; ++i) {
    cuts.push_back({begins[i], static_cast<int32_t>(i)});
  }
  return cuts;
}

}  // namespace crossmesh
