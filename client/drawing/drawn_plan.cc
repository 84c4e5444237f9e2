#include "client/drawing/drawn_plan.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Told apart by most people who see colours differently (after Okabe and Ito), on white.
constexpr std::array<absl::string_view, 8> kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                       "#e69f00", "#56b4e9", "#6f4e9c", "#8a5a2b"};
constexpr absl::string_view kOthers = "#8c8c8c";
constexpr int32_t kNoLayer = std::numeric_limits<int32_t>::max();

}  // namespace

DrawnPlan::DrawnPlan(const SimulatedPlan& simulated)
    : simulated_(simulated),
      network_(HostNetworkOf(simulated.plan.tensors(), simulated.topology)),
      ports_(network_, simulated.topology),
      colour_of_host_(network_.hosts.size()) {
  ChooseColours();
  AddRoutes();
  AddHosts();
}

HostRank DrawnPlan::RootOf(int64_t relay) const {
  const Plan& plan = simulated_.plan;
  return plan.tensors().host_of(plan.relays()[relay].root);
}

double DrawnPlan::TransferBytes(const SimulatedTransfer& transfer) const {
  const Plan& plan = simulated_.plan;
  const Relay& relay = plan.relays()[transfer.relay];
  const int64_t bytes = relay.end - relay.begin;
  return static_cast<double>(bytes) /
         static_cast<double>(RelayChunks(bytes, relay.due, plan.chunk_bytes(), plan.periods()));
}

double DrawnPlan::UseOf(int32_t port) const {
  const SimulatedTimeline& run = simulated_.run;
  const double seconds = run.port_bytes[port] / run.ports[port].bytes_per_second;
  return run.seconds > 0 ? seconds / run.seconds : 0;
}

void DrawnPlan::ChooseColours() {
  std::vector<double> bytes(network_.hosts.size());
  for (const SimulatedTransfer& t : simulated_.run.transfers) {
    bytes[RootOf(t.relay)] += TransferBytes(t);
  }
  std::vector<HostRank> roots;
  for (size_t host = 0; host < bytes.size(); ++host) {
    if (bytes[host] > 0) roots.push_back(static_cast<HostRank>(host));
  }
  std::ranges::stable_sort(roots, std::ranges::greater(), [&](HostRank h) { return bytes[h]; });
  const size_t own = std::min(roots.size(), kColours.size());
  // Those with a colour of their own go by rank, so that neighbours have the same colours in every
  // picture of a cluster.
  std::sort(roots.begin(), roots.begin() + static_cast<std::ptrdiff_t>(own));
  for (size_t i = 0; i < roots.size(); ++i) {
    colour_of_host_[roots[i]] = static_cast<int32_t>(std::min(i, own));
    if (i < own) legend_.push_back({network_.hosts[roots[i]], kColours[i]});
  }
  if (own < roots.size()) {
    const size_t others = roots.size() - own;
    legend_.push_back({absl::StrCat(others, others == 1 ? " other" : " others"), kOthers});
  }
}

void DrawnPlan::AddRoutes() {
  const Plan& plan = simulated_.plan;
  std::map<std::tuple<int32_t, int32_t, int32_t>, DrawnRoute> routes;
  for (const SimulatedTransfer& t : simulated_.run.transfers) {
    const Hop& hop = plan.hops()[t.hop];
    const int32_t colour = ColourOf(t.relay);
    DrawnRoute& route = routes
                            .try_emplace({t.out_port, t.in_port, colour},
                                         DrawnRoute{.from = plan.tensors().host_of(hop.from),
                                                    .to = plan.tensors().host_of(hop.to),
                                                    .out_port = t.out_port,
                                                    .in_port = t.in_port,
                                                    .colour = colour})
                            .first->second;
    route.bytes += TransferBytes(t);
  }
  for (const auto& [ports, route] : routes) routes_.push_back(route);
  std::ranges::stable_sort(routes_, std::ranges::greater(), &DrawnRoute::bytes);
}

std::vector<int32_t> DrawnPlan::Layers() const {
  const Plan& plan = simulated_.plan;
  std::vector<int32_t> layers(network_.hosts.size(), kNoLayer);
  std::vector<int32_t> depth(plan.tensors().devices().size());
  for (const Relay& relay : plan.relays()) {
    depth[relay.root] = 0;
    for (const Hop& hop : plan.hops(relay)) {
      const HostRank from = plan.tensors().host_of(hop.from);
      const HostRank to = plan.tensors().host_of(hop.to);
      depth[hop.to] = depth[hop.from] + (from == to ? 0 : 1);
      if (from == to) continue;
      layers[from] = std::min(layers[from], depth[hop.from]);
      layers[to] = std::min(layers[to], depth[hop.to]);
    }
  }
  return layers;
}

void DrawnPlan::AddHosts() {
  const std::vector<int32_t> layers = Layers();
  for (size_t host = 0; host < layers.size(); ++host) {
    if (layers[host] == kNoLayer) continue;
    hosts_.push_back({.host = static_cast<HostRank>(host), .layer = layers[host]});
    const auto add = [&](int32_t port) { hosts_.back().bytes += simulated_.run.port_bytes[port]; };
    std::ranges::for_each(ports_.out(hosts_.back().host), add);
    std::ranges::for_each(ports_.in(hosts_.back().host), add);
  }
  std::ranges::stable_sort(hosts_, {}, [this](const DrawnHost& h) {
    return std::pair(h.layer, network_.has_racks() ? network_.rack_of_host[h.host] : 0);
  });
}

}  // namespace crossmesh
