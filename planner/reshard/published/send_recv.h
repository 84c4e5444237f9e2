#pragma once

#include "planner/network/routing.h"

#include <absl/status/statusor.h>

namespace crossmesh {

// The published baseline: every receiving device gets its own copy of every slice, straight from
// the holder that has sent least so far (bytes over all slices and tensors, copies inside a host
// included; the first in slot order of several). ResourceExhausted: more relays than a plan may
// have. Cost: linear in copies times holders.
absl::StatusOr<Routes> RouteBySendRecv(const RoutingProblem& problem);

}  // namespace crossmesh
