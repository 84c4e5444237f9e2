#include "planner/reshard/fan_out.h"

#include "planner/network/bound.h"
#include "planner/reshard/host_routes.h"

#include <array>
#include <limits>
#include <span>
#include <vector>

namespace crossmesh {
namespace {

// Of the predicted time: saving less is not worth a larger number of connections.
constexpr double kGainMin = 0.02;
// Between hosts: of all routes that are looked at together.
constexpr int64_t kHopsMax = int64_t{1} << 20;
constexpr std::array<int64_t, 12> kFanOuts = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};

// What decides when routes between hosts end.
struct RouteFigures {
  double busiest_seconds = 0;  // of a host that sends
  int32_t depth = 0;
  double latency_seconds = 0;  // along the route that has most of it
};

class RouteReader {
 public:
  RouteReader(const Demands& demands, const HostNetwork& network)
      : demands_(demands),
        network_(network),
        depth_(network.hosts.size()),
        latency_(network.hosts.size()) {}

  RouteFigures Read(const HostRoutes& routes) {
    figures_ = {};
    sent_.assign(network_.hosts.size(), 0);
    routes.ForEachPiece(
        demands_, [this](std::span<const HostHop> hops, int64_t bytes) { AddPiece(hops, bytes); });
    for (size_t host = 0; host < sent_.size(); ++host) {
      const double seconds =
          static_cast<double>(sent_[host]) / static_cast<double>(network_.host_rates.out[host]);
      figures_.busiest_seconds = std::max(figures_.busiest_seconds, seconds);
    }
    return figures_;
  }

 private:
  void AddPiece(std::span<const HostHop> hops, int64_t bytes) {
    for (const HostHop& hop : hops) {
      const bool from_root = hop.from == hop.root;
      depth_[hop.to] = (from_root ? 0 : depth_[hop.from]) + 1;
      latency_[hop.to] =
          (from_root ? 0 : latency_[hop.from]) + network_.LatencySeconds(hop.from, hop.to);
      sent_[hop.from] += bytes;
      figures_.depth = std::max(figures_.depth, depth_[hop.to]);
      figures_.latency_seconds = std::max(figures_.latency_seconds, latency_[hop.to]);
    }
  }

  const Demands& demands_;
  const HostNetwork& network_;
  std::vector<int32_t> depth_;   // of the present piece's hosts
  std::vector<double> latency_;  // likewise
  std::vector<int64_t> sent_;
  RouteFigures figures_;
};

}  // namespace

int64_t ChooseFanOut(const RoutingProblem& problem, const Plan& chains) {
  const PlanFigures& figures = chains.figures();
  // Routes that lose next to nothing by their depth cannot gain by fanning out.
  if (figures.excess.fill_seconds <= kGainMin * figures.predicted_seconds) return 1;
  if (problem.network.has_racks()) return 1;
  const Demands& demands = problem.groups.demands;
  const SendShares shares = ComputeSendShares(demands, problem.network, problem.bound.seconds());
  const double busiest_seconds = figures.bound.seconds + figures.excess.rounding_seconds;
  const double busiest_bytes = static_cast<double>(chains.periods() * chains.chunk_bytes());
  RouteReader reader(demands, problem.network);
  const auto seconds_of = [&](int64_t fan_out, const HostRoutes& routes) {
    const RouteFigures read = reader.Read(routes);
    const auto period_bytes = static_cast<double>(PeriodBytes(chains.chunk_bytes(), fan_out));
    const double periods = std::max(1.0, busiest_bytes / period_bytes);
    return std::max(busiest_seconds, read.busiest_seconds) * (1 + (read.depth - 1) / periods) +
           read.latency_seconds;
  };
  int64_t best = 1, hops = 0;
  double least_seconds = std::numeric_limits<double>::infinity();
  for (const int64_t fan_out : kFanOuts) {
    const HostRoutes routes = RoundShares(demands, shares, problem.network, fan_out);
    const double seconds = seconds_of(fan_out, routes);
    // Ascending: a larger fan-out must pay for its connections.
    if (seconds < least_seconds * (1 - kGainMin)) {
      best = fan_out;
      least_seconds = seconds;
    }
    hops += std::ssize(routes.hops);
    if (2 * hops > kHopsMax) break;
  }
  return best;
}

}  // namespace crossmesh
