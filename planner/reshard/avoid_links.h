#pragma once

#include "planner/network/routing.h"

#include <set>
#include <utility>

namespace crossmesh {

// From a host to another one, by their ranks.
using HostLinks = std::set<std::pair<HostRank, HostRank>>;

// The same routes but around links that have failed: a device that a relay reaches over one of them
// is reached from another device of the relay, or from another holder, by a relay of its own. A
// relay for which there is no such way stays as it is: what is tried may have healed, and what is
// not tried is never known to have. What is said of the search tells how many relays were changed,
// and how many could not be. Cost: linear where no relay uses such a link; else quadratic in the
// hops of a relay that does, and in its holders.
Routes AvoidLinks(const RoutingProblem& problem, const HostLinks& failed, Routes routes);

}  // namespace crossmesh
