#pragma once

#include "common/mesh/data_type.h"
#include "common/mesh/reduction.h"
#include "common/plan/indices.h"
#include "common/plan/tensor_table.h"

#include <compare>
#include <cstdint>
#include <iterator>
#include <optional>
#include <vector>

#include <absl/strings/string_view.h>

namespace crossmesh {

// What a collective of NCCL does all of, straight between tiles: a step of a course, with the
// reduction that follows it. Of a group of devices:
enum class StepCollective : uint8_t {
  kAllGather,      // each gets the pieces of all, in the order of ranks
  kReduceScatter,  // the summands of all are added, and each gets its piece of the sums
  kAllReduce,      // the same, and each gets all sums
};
absl::string_view StepCollectiveName(StepCollective collective);  // "all-gather", ...

// Whether NCCL makes of so many summands of a type what the reduction does: the sum, or, of
// floating point numbers, the mean.
bool NcclReduces(const Reduction& reduction, DataType type, int64_t summands);

inline bool Reduces(StepCollective collective) { return collective != StepCollective::kAllGather; }

// A collective, and the groups of devices that make it at once, each by itself. All are as large,
// of two devices or more, and no device is in two; those in none have no part in it. A group is in
// the order in which NCCL counts its ranks, which is that of pieces, so not always ascending.
struct GroupedCollective {
  StepCollective kind = StepCollective::kAllGather;
  std::vector<std::vector<DeviceRank>> groups;  // ascending

  int64_t ranks() const { return std::ssize(groups.front()); }
  // Null: in none.
  const std::vector<DeviceRank>* GroupOf(DeviceRank device) const;
  friend auto operator<=>(const GroupedCollective&, const GroupedCollective&) = default;
};

// The collective that a step is, if it is one: whole tensors, no slabs; of each group pieces of one
// length, each in one piece of memory, that lie there in the order of the group; and of what is
// reduced one summand at each device, added (and divided by their number, of floating point
// numbers) in a type that NCCL adds. The same groups for all tensors. Of devices that hold the same
// piece, the first joins the first ones of the other pieces, and so on: those next to each other on
// all other axes. Cost: groups of tensors times devices, sorted.
std::optional<GroupedCollective> FindStepCollective(const TensorTable& table,
                                                    const std::optional<Reduction>& reduction);

}  // namespace crossmesh
