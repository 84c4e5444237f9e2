#pragma once

#include "common/mesh/gpu_costs.h"
#include "common/plan/plan.h"
#include "planner/network/host_network.h"

#include <cstdint>

namespace crossmesh {

// Finds the broadcast groups of a plan to be, and makes those its own whose GPUs are predicted to
// take less time by ncclBroadcast than by relays; all of them go into its figures.
//
// Each group is looked at as though it had the network to itself. Relays do one step after the
// other: with C steps at the root, D more until the last hop's, and the busiest port at work for B
// seconds in all, they take (C + D) x (B / C + a), where a is what a step costs. Broadcasts go
// round a ring of n ranks, slice by slice, at the pace of its slowest port: C calls, one for each
// step, take bytes / rate + C x (a + (n - 2) x (slice / rate + b)), where b is what a rank takes to
// pass a slice on (gpu_costs.h has both). Inside a host bytes take no time.
//
// Cost: linear in relays and hops.
void ChooseBroadcasts(const HostNetwork& network, const GpuCosts& costs, Plan::Spec& plan);

// What the plan is predicted to take with the broadcasts that were chosen. Groups exchange nothing
// with others: where they have all relays, the slowest of them counts.
double SecondsWithBroadcasts(const Plan::Spec& plan);

}  // namespace crossmesh
