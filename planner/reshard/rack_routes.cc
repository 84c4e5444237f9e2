#include "planner/reshard/rack_routes.h"

#include "common/base/status_macros.h"
#include "planner/network/port_load.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

namespace crossmesh {

absl::Status AddMix(const Demands& demands, const HostNetwork& network, ExactBound& bound) {
  if (!network.has_racks() || demands.demands.empty()) return absl::OkStatus();
  const Fraction terms = bound.terms();
  ASSIGN_OR_RETURN(const HostRoutes routes, RouteByFlow(demands, network, terms));
  const RouteLoad load = LoadOfRoutes(demands, routes, network);
  // Routes that meet the terms prove them to be the least time: the linear programme would say the
  // same.
  if (load.busiest_seconds <= terms.ToDouble() * kAsGoodAsBound) return absl::OkStatus();
  bound.mix = MixDeliveries(demands, network, terms);
  return absl::OkStatus();
}

HostRoutes RoutesOfMix(const Demands& demands, const DeliveryMix& mix) {
  HostRoutes routes;
  for (size_t d = 0; d < demands.demands.size(); ++d) {
    routes.first_piece.push_back(static_cast<int64_t>(routes.pieces.size()));
    const int64_t bytes = demands.demands[d].bytes;
    const std::vector<DeliveryMix::Part>& parts = mix.parts[d];
    double share = 0;
    int64_t begin = 0;
    for (const DeliveryMix::Part& part : parts) {
      share += part.share;
      const int64_t end =
          // The last part takes what rounding has left, so that the parts cover the demand.
          &part == &parts.back()
              ? bytes
              : std::min<int64_t>(bytes, std::llround(share * static_cast<double>(bytes)));
      if (end == begin) continue;
      const int64_t first_hop = static_cast<int64_t>(routes.hops.size());
      routes.hops.insert(routes.hops.end(), part.hops.begin(), part.hops.end());
      routes.pieces.push_back({.end = end,
                               .first_hop = first_hop,
                               .end_hop = static_cast<int64_t>(routes.hops.size())});
      begin = end;
    }
  }
  routes.first_piece.push_back(static_cast<int64_t>(routes.pieces.size()));
  return routes;
}

RouteLoad LoadOfRoutes(const Demands& demands, const HostRoutes& routes,
                       const HostNetwork& network) {
  PortLoad load(network);
  routes.ForEachPiece(demands, [&](std::span<const HostHop> hops, int64_t bytes) {
    for (const HostHop& hop : hops) load.Add(network, hop.from, hop.to, bytes);
  });
  return {.busiest_seconds = FindBusiestPort(load, network).seconds,
          .crossing_bytes = std::accumulate(load.rack_up.begin(), load.rack_up.end(), int64_t{0})};
}

int64_t LeastCrossingBytes(const Demands& demands, const HostNetwork& network) {
  const Demands racks = RackDemands(demands, network);
  const std::vector<int64_t> bytes = BytesIn(racks, network.racks.size());
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

}  // namespace crossmesh
