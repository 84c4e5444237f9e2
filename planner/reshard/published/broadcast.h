#pragma once

#include "planner/network/routing.h"

#include <cstdint>

#include <absl/status/statusor.h>

namespace crossmesh {

// Which holder host sends a slice, and when.
enum class BroadcastOrder : uint8_t {
  kNaive,   // the first holder's host; slices in their order
  kSize,    // the holder host with least bytes so far, the lowest rank of several; same order
  kGreedy,  // both by the randomised greedy, from the problem's seed
  kSearch,  // both by depth-first search, from the better of the two before
};

// The pipelined broadcast of arXiv 2211.05322: every slice goes as a whole down one chain, from the
// first holder on the sender host through all receiving devices of the first host, then of the
// second, and so on in slot order. Receivers on a holder host are fed from there. The model time is
// BroadcastMakespan.
//
// ResourceExhausted: more relays than a plan may have, or, for kGreedy, OrderGreedily's limit.
// Cancelled as OrderGreedily and SearchOrder are. Cost: linear in hops, besides those two.
absl::StatusOr<Routes> RouteByBroadcast(const RoutingProblem& problem, BroadcastOrder order);

}  // namespace crossmesh
