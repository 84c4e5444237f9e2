#pragma once

#include "common/mesh/topology.h"
#include "common/plan/plan.h"
#include "planner/network/simulator.h"

#include <string>

namespace crossmesh {

// A plan with its run, as DrawPicture takes it: hosts, ports, routes with the times of their
// chunks, and the critical chain. Chunks that a picture could not tell apart are one. The run must
// have kept its transfers. Cost: transfers and hops.
std::string PlanPicture(const Plan& plan, const Topology& topology, const SimulatedTimeline& run);

}  // namespace crossmesh
