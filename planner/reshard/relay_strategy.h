#pragma once

#include "planner/network/routing.h"

#include <cstdint>

#include <absl/status/statusor.h>

namespace crossmesh {

// The strategy `relay`: shares of all hosts by flow over all tensors together, whole routes by
// wrap-around, chains and trees between hosts; no port needs longer than the bound but for rounding
// to elements (facts: Zhuang et al., arXiv 2211.05322, for relays; splitting a slice over its
// holders and fanning out where the flow asks for it are ours). With a `fan_out` of more than 1
// chains become trees that are less deep (RoundShares), and ports carry the same. With
// racks, where chains load some port longer than the bound, the deliveries of the bound's mix are
// taken instead, whatever the fan-out.
//
// A piece enters a host once, at the needing device that has received least so far, which feeds the
// next hosts and, as a star, the other needing devices of its host: as many local copies as a chain
// would make, at depth 1. The root is the holder on the host that has sent least. Devices that need
// what another device of their host holds are fed from there. Ties go by rank.
//
// ResourceExhausted when that takes more relays, or hops, than a plan may have; hops are counted
// before any is made. Cost: two or three maximum
// flows over the groups, then linear in classes and hops.
absl::StatusOr<Routes> RouteByRelays(const RoutingProblem& problem, int64_t fan_out = 1);

}  // namespace crossmesh
