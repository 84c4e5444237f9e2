#pragma once

#include "planner/pipeline/schedule.h"

#include <cstddef>
#include <string>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Names the place in a text of the op in place `at` of a rank's order: "row 1, column 4".
using PlaceName = absl::FunctionRef<std::string(RankIndex rank, size_t at)>;

// The schedule whose ranks do the ops that a text says; stages and microbatches are one more than
// the highest index. InvalidArgument, with place, what was expected and what was found: an op that
// is there twice, in two forms, without what it needs of the same stage before it, or not at all;
// a stage with ops on two ranks. Cost: ops, times their logarithm.
absl::StatusOr<Schedule> ScheduleOfPlacedOps(std::vector<std::vector<Op>> ranks, PlaceName place);

// Which rank has which stage. The schedule is one of those above.
std::vector<RankIndex> StageRanks(const Schedule& schedule);

}  // namespace crossmesh
