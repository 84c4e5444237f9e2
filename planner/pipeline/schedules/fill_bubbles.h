#pragma once

#include "planner/pipeline/schedule.h"

#include <absl/status/statusor.h>

namespace crossmesh {

// Moves ops of a chain of stages, with gradients one by one, to where ranks would wait if all ops
// took equally long and transfers no time: a rank always does the first op of its order that can
// begin, those that others wait for before gradients of the weights; unless it would then hold more
// microbatches, at that op or at one that it passes over, than the fullest rank does in the given
// order. The given order when that ends no sooner. InvalidArgument as OpTable::Create and
// ProveOrder. Cost: ops, times those of a rank at worst.
absl::StatusOr<Schedule> FillBubbles(const Schedule& schedule);

}  // namespace crossmesh
