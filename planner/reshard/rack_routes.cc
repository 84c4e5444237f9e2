#include "planner/reshard/rack_routes.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

namespace crossmesh {
namespace {

class PortBytes {
 public:
  explicit PortBytes(const HostNetwork& network)
      : network_(network),
        out_(network.hosts.size()),
        in_(network.hosts.size()),
        up_(network.racks.size()),
        down_(network.racks.size()) {}

  void Add(HostRank from, HostRank to, int64_t bytes) {
    out_[from] += bytes;
    in_[to] += bytes;
    if (!network_.CrossesRacks(from, to)) return;
    up_[network_.rack_of_host[from]] += bytes;
    down_[network_.rack_of_host[to]] += bytes;
    crossing_bytes_ += bytes;
  }

  RouteLoad Load() const {
    const double seconds =
        std::max({Busiest(out_, network_.host_rates.out), Busiest(in_, network_.host_rates.in),
                  Busiest(up_, network_.rack_rates.out), Busiest(down_, network_.rack_rates.in)});
    return {.busiest_seconds = seconds, .crossing_bytes = crossing_bytes_};
  }

 private:
  static double Busiest(std::span<const int64_t> bytes, std::span<const int64_t> rates) {
    double busiest = 0;
    for (size_t place = 0; place < rates.size(); ++place) {
      if (rates[place] == PortRates::kUnlimited) continue;
      busiest =
          std::max(busiest, static_cast<double>(bytes[place]) / static_cast<double>(rates[place]));
    }
    return busiest;
  }

  const HostNetwork& network_;
  std::vector<int64_t> out_;
  std::vector<int64_t> in_;
  std::vector<int64_t> up_;
  std::vector<int64_t> down_;
  int64_t crossing_bytes_ = 0;
};

}  // namespace

void AddMix(const Demands& demands, const HostNetwork& network, ExactBound& bound) {
  if (!network.has_racks() || demands.demands.empty()) return;
  const Fraction terms = bound.terms();
  const HostRoutes routes = RouteByFlow(demands, network, terms);
  const RouteLoad load = LoadOfRoutes(demands, routes, network);
  // Routes that meet the terms prove them to be the least time: the linear programme would say the
  // same.
  if (load.busiest_seconds <= terms.ToDouble() * kAsGoodAsBound) return;
  bound.mix = MixDeliveries(demands, network, terms);
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
  PortBytes ports(network);
  for (size_t d = 0; d < demands.demands.size(); ++d) {
    const Demand& demand = demands.demands[d];
    const std::span<const Piece> pieces = routes.PiecesOf(static_cast<int64_t>(d));
    if (pieces.empty()) {
      ports.Add(demands.holders(demand)[0], demands.receivers(demand)[0], demand.bytes);
    }
    int64_t begin = 0;
    for (const Piece& piece : pieces) {
      for (const HostHop& hop : routes.HopsOf(piece)) {
        ports.Add(hop.from, hop.to, piece.end - begin);
      }
      begin = piece.end;
    }
  }
  return ports.Load();
}

int64_t LeastCrossingBytes(const Demands& demands, const HostNetwork& network) {
  const Demands racks = RackDemands(demands, network);
  const std::vector<int64_t> bytes = BytesIn(racks, network.racks.size());
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

}  // namespace crossmesh
