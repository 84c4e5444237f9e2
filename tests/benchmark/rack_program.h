#pragma once

#include "planner/network/demands.h"
#include "planner/network/host_network.h"

namespace crossmesh {

// The least time of any plan in the fluid model with racks, by a linear programme. `network` must
// have racks. To compare planners with: for every demand the programme chooses how much each host
// sends inside its rack and out of it, and how much enters each rack, so that every byte can start
// at a holder and reach everybody (equal to the programme over all delivery forests in every case
// tried; not proven). Cost: a linear programme with three variables for each host of each demand.
double RackProgramSeconds(const Demands& demands, const HostNetwork& network);

}  // namespace crossmesh
