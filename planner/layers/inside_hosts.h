#pragma once

#include "common/mesh/device.h"
#include "common/mesh/topology.h"
#include "common/plan/plan.h"

#include <vector>

namespace crossmesh {

// What a message of a plan takes inside hosts, where plans between hosts count nothing.
struct InsideHosts {
  std::vector<DeviceId> devices;  // that receive something from another one of their host
  double seconds = 0;             // beside what the plan is predicted to take
};

// By the law that prices grids and the search of redistributions have (SlowestRatesOf): a device
// receives at its part of what devices of its host exchange, or at what is assumed of host memory,
// beside what comes from other hosts, and step after step. Nothing more of GPUs, whose plans count
// their links. Cost: linear in hops.
InsideHosts MovedInsideHosts(const Plan& plan, const Topology& topology);

}  // namespace crossmesh
