#pragma once

#include "common/plan/plan.h"
#include "planner/network/routing.h"

#include <algorithm>
#include <cstdint>

namespace crossmesh {

// What passes the busiest port in a period: a chunk of each of the trees that pass the same port,
// none of which is less than a leaf.
constexpr int64_t PeriodBytes(int64_t chunk_bytes, int64_t fan_out) {
  return std::max(chunk_bytes, fan_out * Plan::kLeafBytes);
}

// The fan-out (RoundShares) with which relays are predicted to end first, where `chains` would end
// late because of their depth: K periods, routes D hops deep and latencies of L on the way
// take (1 + (D - 1) / K) of the time of the busiest port, and L. A larger fan-out makes fewer hops
// and, where chunks are as small as leaves, fewer periods. 1: chains are as good, or nothing better
// is known: with racks, whose uplinks a tree may pass more often than a chain. A larger one must be
// faster by 2 %. Cost: a flow, and routes of a million hops between hosts, or twice those
// of the chains.
int64_t ChooseFanOut(const RoutingProblem& problem, const Plan& chains);

}  // namespace crossmesh
