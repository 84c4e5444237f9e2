#include "client/planning/plan_picture.h"

#include "planner/network/host_network.h"
#include "planner/network/nic_ports.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <absl/strings/string_view.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

// Of the run: chunks at least so long stay apart, and pauses so long are seen.
constexpr double kChunkPart = 1.0 / 200;
constexpr double kPausePart = 1.0 / 2000;
constexpr size_t kBarsMax = 20'000;

using Span = std::pair<double, double>;  // begin and end, in seconds

// Bytes of one root from NIC to NIC.
struct Route {
  HostRank sender = 0;
  HostRank receiver = 0;
  double bytes = 0;
  double latency_seconds = 0;
  std::vector<Span> bars;
};

absl::string_view DirectionOf(PortPrice::Port kind) {
  // In the order of PortPrice::Port.
  constexpr absl::string_view kNames[] = {"out", "in", "up", "down", "out", "in"};
  static_assert(std::size(kNames) == static_cast<size_t>(PortPrice::Port::kGpuIn) + 1);
  return kNames[static_cast<size_t>(kind)];
}

class Description {
 public:
  Description(const Plan& plan, const Topology& topology, const SimulatedTimeline& run)
      : plan_(plan),
        run_(run),
        network_(HostNetworkOf(plan.tensors(), topology)),
        ports_(network_, topology) {
    for (const SimulatedTransfer& transfer : run.transfers) AddTransfer(transfer);
    // Coarser and coarser, until there are few bars, or every route has only one.
    double coarse = 1;
    do {
      for (auto& [key, route] : routes_) Join(coarse, route.bars);
      coarse *= 2;
    } while (Bars() > kBarsMax && coarse * kPausePart < 4);
  }

  nlohmann::json Document() const {
    const PlanFigures& figures = plan_.figures();
    return {{"picture", "plan"},
            {"strategy", figures.strategy},
            {"seconds", run_.seconds},
            {"bound_seconds", figures.bound.seconds},
            {"assumed_rates", figures.assumed_rates},
            {"network_bytes", figures.network_bytes},
            {"relays", plan_.relays().size()},
            {"depth", figures.depth},
            {"chunk_bytes", plan_.chunk_bytes()},
            {"hosts", Hosts()},
            {"ports", Ports()},
            {"routes", Routes()},
            {"critical", CriticalChain()}};
  }

 private:
  using Key = std::tuple<int32_t, int32_t, HostRank>;  // ports out and in, root

  Key KeyOf(const SimulatedTransfer& transfer) const {
    const HostRank root = plan_.tensors().host_of(plan_.relays()[transfer.relay].root);
    return {transfer.out_port, transfer.in_port, root};
  }

  void AddTransfer(const SimulatedTransfer& transfer) {
    const Relay& relay = plan_.relays()[transfer.relay];
    const Hop& hop = plan_.hops()[transfer.hop];
    const int64_t bytes = relay.end - relay.begin;
    Route& route = routes_[KeyOf(transfer)];
    route.sender = plan_.tensors().host_of(hop.from);
    route.receiver = plan_.tensors().host_of(hop.to);
    route.latency_seconds = ports_.LatencySeconds(transfer.out_port, transfer.in_port);
    // The simulator cuts relays into equal chunks.
    route.bytes +=
        static_cast<double>(bytes) /
        static_cast<double>(RelayChunks(bytes, relay.due, plan_.chunk_bytes(), plan_.periods()));
    route.bars.emplace_back(transfer.begin_seconds, transfer.end_seconds);
    // Chunks come by their ends, so that what can be joined is the last bar, and memory stays
    // small.
    if (route.bars.size() % 256 == 0) Join(1, route.bars);
  }

  // Short ones that follow each other, or overlap, become one.
  void Join(double coarse, std::vector<Span>& bars) const {
    std::ranges::sort(bars);
    std::vector<Span> joined;
    for (const Span& bar : bars) {
      const bool is_short = bar.second - bar.first < coarse * kChunkPart * run_.seconds;
      if (!joined.empty() && (is_short || bar.first < joined.back().second) &&
          bar.first - joined.back().second <= coarse * kPausePart * run_.seconds) {
        joined.back().second = std::max(joined.back().second, bar.second);
      } else {
        joined.push_back(bar);
      }
    }
    bars = std::move(joined);
  }

  size_t Bars() const {
    size_t bars = 0;
    for (const auto& [key, route] : routes_) bars += route.bars.size();
    return bars;
  }

  nlohmann::json Hosts() const {
    nlohmann::json hosts = nlohmann::json::array();
    for (size_t host = 0; host < network_.hosts.size(); ++host) {
      const bool has_rack = network_.has_racks();
      hosts.push_back({{"name", network_.hosts[host]},
                       {"rack", has_rack ? network_.racks[network_.rack_of_host[host]] : ""}});
    }
    return hosts;
  }

  nlohmann::json Ports() const {
    std::vector<HostRank> host_of(run_.ports.size(), -1);
    for (HostRank host = 0; host < ports_.hosts(); ++host) {
      for (const int32_t port : ports_.out(host)) host_of[port] = host;
      for (const int32_t port : ports_.in(host)) host_of[port] = host;
    }
    nlohmann::json ports = nlohmann::json::array();
    for (size_t i = 0; i < run_.ports.size(); ++i) {
      ports.push_back({{"name", run_.ports[i].name},
                       {"direction", DirectionOf(run_.ports[i].kind)},
                       {"host", host_of[i]},
                       {"bytes_per_second", run_.ports[i].bytes_per_second},
                       {"bytes", run_.port_bytes[i]}});
    }
    return ports;
  }

  nlohmann::json Routes() const {
    nlohmann::json routes = nlohmann::json::array();
    for (const auto& [key, route] : routes_) {
      const auto [out_port, in_port, root] = key;
      routes.push_back({{"sender", route.sender},
                        {"receiver", route.receiver},
                        {"root", root},
                        {"ports", ports_.Path(route.sender, out_port, route.receiver, in_port)},
                        {"bytes", route.bytes},
                        {"latency_seconds", route.latency_seconds},
                        {"bars", route.bars}});
    }
    return routes;
  }

  // Chunks of one route that follow one another are one span.
  nlohmann::json CriticalChain() const {
    nlohmann::json chain = nlohmann::json::array();
    auto last = routes_.end();
    for (const int64_t number : run_.CriticalChain()) {
      const SimulatedTransfer& transfer = run_.transfers[number];
      const auto route = routes_.find(KeyOf(transfer));
      if (route != last) {
        const auto index = std::distance(routes_.begin(), route);
        chain.push_back({index, transfer.begin_seconds, transfer.end_seconds});
      }
      chain.back()[2] = transfer.end_seconds;
      last = route;
    }
    return chain;
  }

  const Plan& plan_;
  const SimulatedTimeline& run_;
  const HostNetwork network_;
  const NicPorts ports_;
  std::map<Key, Route> routes_;
};

}  // namespace

std::string PlanPicture(const Plan& plan, const Topology& topology, const SimulatedTimeline& run) {
  // Names may have any bytes; a document may not.
  return Description(plan, topology, run)
      .Document()
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace crossmesh
