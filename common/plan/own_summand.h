// The summand of a piece that a device has itself, which it need not copy beside those that come.
// Where sums go round a ring, there is no other one.

#pragma once

#include "common/plan/course_tables.h"
#include "common/plan/indices.h"
#include "common/plan/plan.h"
#include "common/plan/tensor_table.h"

#include <cstdint>
#include <optional>
#include <span>

#include <absl/status/status.h>

namespace crossmesh {

// Where a device's own summand of a piece lies in its source tile: runs of bytes, in the order in
// which the piece has them.
struct OwnSummand {
  int64_t first = 0;  // from where the instance's part of the tile begins
  int64_t run_bytes = 0;
  int64_t pitch = 0;  // from the beginning of a run to that of the next
  friend bool operator==(const OwnSummand&, const OwnSummand&) = default;
};

// Of the piece of a tensor that a step brings to a device. `first`: the table of the course's first
// step. Nothing when the piece is not in the source tile, has another shape there, or lies in more
// than one row of runs. Cost: linear in dimensions.
std::optional<OwnSummand> FindOwnSummand(const TensorTable& first, const TensorTable& step,
                                         int32_t tensor, DeviceRank device);

// Which one the device's own summand is of those that the first step brings it of a tensor. Nothing
// when its source tile has more than one summand, or none of these.
std::optional<int64_t> FindOwnIndex(const TensorTable& first, int32_t tensor, DeviceRank device);

// Proves of a tensor of a course that the steps that add own summands come first, and that what
// they leave has the summands of all devices, each once; OK where there are none. A sum is told
// from another one of its piece by the summand that it began with, which is the one that its tile
// has. Nothing else may need the source after the first step: none of these steps is a collective,
// nor is the source released. Only the last may divide.
//
// Example: the sums of three devices, which have [3, 6] by rows, and are each to have a third of
// the columns. Piece 0 begins at device 1, which sends its summand to 2, which adds its own one and
// sends the sum to 0. Device 0 meanwhile sends its summand of piece 2 to 1, and 2 that of piece 1
// to 0:
//
//   step 0   [0:1, 0:6] [1:2, 0:6] [2:3, 0:6]  ->  [2:3, 2:4] [0:1, 4:6] [1:2, 0:2]
//   step 1   [2:3, 2:4] [0:1, 4:6] [1:2, 0:2]  ->  [1:2, 0:2] [2:3, 2:4] [0:1, 4:6]
//
// InvalidArgument names the step, the tensor and the device. Cost: the steps times the square of
// the devices, which are at most one more than a course may have steps.
absl::Status ProveRing(const CourseTables& course, int32_t tensor);

// FailedPrecondition when a step adds own summands out of memory that is the destination's as well,
// which steps may have filled by then.
absl::Status ProveOwnSummandsStay(std::span<const CourseTables> courses, BindingMode binding,
                                  bool shared_storage);

}  // namespace crossmesh
