#pragma once

#include "planner/network/routing.h"
#include "planner/reshard/strategy.h"

#include <absl/status/statusor.h>

namespace crossmesh {

// The routes of a strategy of the literature, any but kRelay (Internal), spread over the execution:
// such a strategy says in which order slices go, and executors also need to know when.
absl::StatusOr<Routes> RouteAsPublished(Strategy strategy, const RoutingProblem& problem);

}  // namespace crossmesh
