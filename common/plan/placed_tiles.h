#pragma once

#include "common/mesh/box.h"
#include "common/mesh/layout.h"
#include "common/mesh/mesh.h"
#include "common/plan/id_sets.h"
#include "common/plan/tensor_table.h"

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Where an interval of a dimension begins, and which part of the dimension it is; it ends where the
// next one begins, or at the end of the dimension.
struct Cut {
  int64_t begin = 0;
  int32_t part = 0;
};

// One side of all tensors of a placement, as a grid of parts per dimension with the devices that
// hold each tuple of parts. Which devices do so depends on the placement alone; only where the
// parts lie depends on the tensor's shape, so groups of one placement share this. Immutable.
class PlacedTiles {
 public:
  static constexpr int64_t kTuplesMax = int64_t{1} << 26;
  // Each takes some bytes while tiles are listed.
  static constexpr int64_t kPaintedMax = int64_t{1} << 26;

  // `rank`: of the tensors. Interns the device sets of all tiles. ResourceExhausted when explicit
  // tiles give more than kTuplesMax tuples, or the tuples of all their boxes are more than
  // kPaintedMax. `placement` must outlive it.
  static absl::StatusOr<PlacedTiles> Create(const Placement& placement,
                                            std::span<const DeviceRank> slots, int rank,
                                            IdSets& sets);

  // The intervals of a dimension of this length, ascending, the first at 0; none when it is 0.
  std::vector<Cut> Cuts(int dimension, int64_t length) const;

  // Index of a tuple of parts into set_of_tile: the sum of part * stride.
  int64_t stride(int dimension) const { return stride_[dimension]; }
  // May be the empty set, where an explicit layout has no tile.
  const std::vector<int32_t>& set_of_tile() const { return set_of_tile_; }

 private:
  PlacedTiles(const Layout& layout, int rank) : layout_(layout), stride_(rank) {}
  absl::Status PlaceAxes(const Mesh& mesh, std::span<const DeviceRank> slots, IdSets& sets);
  absl::Status PlaceBoxes(std::span<const DeviceRank> slots, IdSets& sets);
  // Returns the number of tuples.
  absl::StatusOr<int64_t> SetStrides(std::span<const int64_t> parts);
  absl::Status CheckPainted() const;
  // First and last index of the intervals of which a box of an explicit layout consists.
  std::pair<int64_t, int64_t> IndexRange(int dimension, Interval interval) const;

  const Layout& layout_;
  std::vector<std::vector<int64_t>> axis_sizes_;  // [dimension], of an axis layout
  std::vector<std::vector<int64_t>> begins_;      // [dimension], of an explicit layout
  std::vector<int64_t> stride_;                   // [dimension]
  std::vector<int32_t> set_of_tile_;
};

}  // namespace crossmesh
