#pragma once

#include "planner/network/bound.h"
#include "planner/network/delivery_mix.h"
#include "planner/network/demands.h"
#include "planner/network/host_network.h"
#include "planner/reshard/host_routes.h"

#include <cstdint>

#include <absl/status/status.h>

namespace crossmesh {

// Routes this many times above the bound are still taken for as good.
inline constexpr double kAsGoodAsBound = 1.001;

// Adds the mix to a bound with racks whose terms the routes of the flow do not reach. Where they
// do, these terms are the least time, and the bound stays as it is. ResourceExhausted: these routes
// have more hops than a plan may have.
absl::Status AddMix(const Demands& demands, const HostNetwork& network, ExactBound& bound);

// Every part of a mix as a piece. A mix that is not empty. Cost: linear in its hops.
HostRoutes RoutesOfMix(const Demands& demands, const DeliveryMix& mix);

// What routes between hosts put on the ports, in whole bytes but not yet in whole elements.
struct RouteLoad {
  double busiest_seconds = 0;
  int64_t crossing_bytes = 0;  // that enter racks
};

// `network` must have racks. Cost: linear in the hops.
RouteLoad LoadOfRoutes(const Demands& demands, const HostRoutes& routes,
                       const HostNetwork& network);

// The least that enters racks, whatever the routes: every byte once in each rack that needs it and
// has no holder.
int64_t LeastCrossingBytes(const Demands& demands, const HostNetwork& network);

}  // namespace crossmesh
