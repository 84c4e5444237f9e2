#pragma once

#include "common/plan/tensor_table.h"
#include "planner/network/host_network.h"
#include "planner/network/port_load.h"
#include "planner/network/routing.h"

namespace crossmesh {

// Do streams of several hosts meet at ports, all of which are busy from the beginning of the run to
// its end? That is so where all hosts send as much to all others. There each stream is to keep the
// even pace that the flow gives it (Plan::Spec::least_run_ns): streams that are sent as fast as may
// be lose what recovering from losses takes where they meet, and as some end before others, ports
// idle in the end. Only where the ports' rates are described, since no stream is faster than that,
// and nothing is forwarded. Cost: linear in hops.
bool WantsEvenPace(const TensorTable& tensors, const HostNetwork& network, const Routes& routes,
                   const PortLoad& load);

}  // namespace crossmesh
