#pragma once

#include "planner/network/routing.h"

#include <absl/status/statusor.h>

namespace crossmesh {

// Scatter and ring: every slice is cut into one part for each of its n receivers, sent to them by
// the holder host that has sent least between hosts so far (the lowest rank of several), and each
// part goes on around the ring of the receivers in slot order. Here a part is a relay, so that the
// ring need not wait for the scatter. ResourceExhausted: more relays, or hops, than a plan may
// have: n receivers take n * n. Cost: linear in hops.
absl::StatusOr<Routes> RouteByGlobalAllGather(const RoutingProblem& problem);

}  // namespace crossmesh
