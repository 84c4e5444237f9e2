#pragma once

#include "common/plan/indices.h"

#include <span>
#include <vector>

#include <absl/status/status.h>

namespace crossmesh {

class TensorTable;
struct CourseTables;
struct GroupedCollective;

// How many splits the collectives of a plan may need together: a GPU has a communicator for each,
// as long as it has the plan's (docs/gpu.md).
inline constexpr int kCommunicatorSplitsMax = 4;

// Groups of devices that have a communicator each, by ncclCommSplit of the plan's: the groups of
// the collective of a step, in ranks of the plan's table, `whole`. Empty where that is one group of
// all devices in their order, for which there is the plan's own. `step` has no other devices.
using CommunicatorSplit = std::vector<std::vector<DeviceRank>>;
CommunicatorSplit SplitFor(const TensorTable& whole, const TensorTable& step,
                           const GroupedCollective& collective);

// What the steps of courses for which there is a collective need, in their order and each once.
// All ranks find the same. Cost: that of FindStepCollective for each such step.
std::vector<CommunicatorSplit> SplitsOf(const TensorTable& whole,
                                        std::span<const CourseTables> courses);
// InvalidArgument: more than kCommunicatorSplitsMax.
absl::Status ProveSplits(const TensorTable& whole, std::span<const CourseTables> courses);

}  // namespace crossmesh
