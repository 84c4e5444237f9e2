#pragma once

#include "planner/network/routing.h"

#include <absl/status/statusor.h>

namespace crossmesh {

// Send/receive with a local all-gather, idealised (the published one falls back to send/receive
// where layouts are awkward): every slice goes once to every receiving host, ascending, from the
// holder host that has sent least so far (the lowest rank of several). Of the B receiving devices
// there device k gets part k of B, and passes it on to the others. Receivers beside a holder get
// their parts from it. ResourceExhausted: more relays, or hops, than a plan may have. Cost: linear
// in parts and hops.
absl::StatusOr<Routes> RouteByLocalAllGather(const RoutingProblem& problem);

}  // namespace crossmesh
