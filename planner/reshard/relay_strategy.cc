#include "planner/reshard/relay_strategy.h"

#include "common/base/status_macros.h"
#include "planner/network/bound.h"
#include "planner/reshard/class_pieces.h"
#include "planner/reshard/host_rings.h"
#include "planner/reshard/host_routes.h"
#include "planner/reshard/rack_routes.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// That the relays of all pieces have no more hops than a plan may: those between hosts go to all
// receivers there. What is not cut has been counted before (CheckClassCounts), and most is not.
absl::Status CheckPiecesOfClasses(const RoutingProblem& problem, const HostRoutes& host_routes) {
  ClassPieces pieces(problem.tensors, problem.slicing, problem.groups, host_routes);
  int64_t repeated = 0;  // hops, of pieces beyond the first of each class
  const auto classes = static_cast<ClassIndex>(problem.slicing.classes().size());
  for (ClassIndex c = 0; c < classes; ++c) {
    int64_t parts = 0, hops = 0;
    pieces.ForEach(c, [&](const Relay&, std::span<const HostHop> host_hops) {
      if (++parts != 2) return;
      // The same for every piece, and of no use where there is one.
      for (const HostHop& hop : host_hops) {
        hops += std::ssize(DevicesOnHost(problem.slicing.receivers(c), hop.to, problem.tensors));
      }
    });
    if (parts > 1) repeated += (parts - 1) * hops;
    RETURN_IF_ERROR(CheckHopCount("relay", repeated));
  }
  if (repeated == 0) return absl::OkStatus();
  int64_t least = 0;
  for (ClassIndex c = 0; c < classes; ++c) least += LeastHops(problem.slicing, c);
  return CheckHopCount("relay", least + repeated);
}

// Expands routes between hosts to routes between devices, class by class. The pieces of all groups
// go side by side from the beginning to the end of the execution; those of the classes in a piece
// one after the other.
class RelayExpansion {
 public:
  RelayExpansion(const RoutingProblem& problem, const HostRoutes& host_routes)
      : problem_(problem),
        pieces_(problem.tensors, problem.slicing, problem.groups, host_routes),
        sent_(problem.tensors.devices().size()),
        received_(problem.tensors.devices().size()),
        device_of_host_(problem.tensors.hosts().size()) {
    routes_.relays.reserve(problem.slicing.classes().size());  // at least, as a rule
    routes_.hops.reserve(problem.slicing.classes().size());
  }

  // Classes must come in order. Stops within one that takes more relays than a plan may have.
  void RouteClass(ClassIndex c) {
    RouteInsideHosts(c, problem_.slicing.classes()[c].bytes);
    pieces_.ForEach(c, [this](const Relay& relay, std::span<const HostHop> hops) {
      if (relays() <= Plan::kRelaysMax) AddRelays(relay, hops);
    });
  }

  int64_t relays() const { return static_cast<int64_t>(routes_.relays.size()); }
  Routes Finish() && { return std::move(routes_); }

 private:
  void RouteInsideHosts(ClassIndex c, int64_t bytes) {
    const std::span<const DeviceRank> holders = problem_.slicing.holders(c);
    std::span<const DeviceRank> receivers = problem_.slicing.receivers(c);
    while (!receivers.empty()) {
      const HostRank host = problem_.tensors.host_of(receivers[0]);
      const std::span<const DeviceRank> here = FirstOnOneHost(receivers, host);
      receivers = receivers.subspan(here.size());
      const std::span<const DeviceRank> sources = DevicesOnHost(holders, host, problem_.tensors);
      // No copy on this host, or all of its receivers hold their own: nothing moves inside it.
      if (sources.empty() || std::ranges::includes(sources, here)) continue;
      const DeviceRank root = TakeLeast(sources, sent_, bytes);
      routes_.BeginRelay({.slice_class = c, .root = root, .end = bytes});
      for (const DeviceRank device : here) {
        if (!std::ranges::binary_search(sources, device)) routes_.AddHop(root, device);
      }
    }
  }

  // One such relay for every root of the hops.
  void AddRelays(Relay relay, std::span<const HostHop> hops) {
    const ClassIndex c = relay.slice_class;
    const int64_t bytes = relay.end - relay.begin;
    HostRank root_host = -1;
    for (const HostHop& hop : hops) {
      if (hop.root != root_host) {
        root_host = hop.root;
        relay.root = TakeLeast(
            DevicesOnHost(problem_.slicing.holders(c), root_host, problem_.tensors), sent_, bytes);
        device_of_host_[root_host] = relay.root;
        routes_.BeginRelay(relay);
      }
      const std::span<const DeviceRank> here =
          DevicesOnHost(problem_.slicing.receivers(c), hop.to, problem_.tensors);
      const DeviceRank entry = TakeLeast(here, received_, bytes);
      device_of_host_[hop.to] = entry;
      routes_.AddHop(device_of_host_[hop.from], entry);
      for (const DeviceRank device : here) {
        if (device != entry) routes_.AddHop(entry, device);
      }
    }
  }

  std::span<const DeviceRank> FirstOnOneHost(std::span<const DeviceRank> devices,
                                             HostRank host) const {
    size_t count = 1;
    while (count < devices.size() && problem_.tensors.host_of(devices[count]) == host) ++count;
    return devices.first(count);
  }

  // The device with the least load so far, which then has `bytes` more.
  static DeviceRank TakeLeast(std::span<const DeviceRank> devices, std::vector<int64_t>& load,
                              int64_t bytes) {
    const DeviceRank least =
        *std::ranges::min_element(devices, {}, [&load](DeviceRank d) { return load[d]; });
    load[least] += bytes;
    return least;
  }

  const RoutingProblem& problem_;
  ClassPieces pieces_;
  Routes routes_;
  std::vector<int64_t> sent_;               // bytes of relays that a device is the root of
  std::vector<int64_t> received_;           // bytes that enter a host at this device
  std::vector<DeviceRank> device_of_host_;  // that has the bytes of the present relay
};

absl::StatusOr<HostRoutes> RouteByFlow(const RoutingProblem& problem, int64_t fan_out = 1) {
  if (fan_out > 1 || problem.network.has_racks()) {
    return RouteByFlow(problem.groups.demands, problem.network, problem.bound.terms(), fan_out);
  }
  const Demands& demands = problem.groups.demands;
  SendShares shares = ComputeSendShares(demands, problem.network, problem.bound.terms());
  if (!problem.no_rings) CloseRings(demands, shares);
  RETURN_IF_ERROR(CheckPieces(demands, shares));
  return RoundShares(demands, shares, problem.network);
}

struct RackRoutes {
  HostRoutes routes;
  double planned_seconds = 0;  // where they are not as good as the bound
  std::string search;
};

// Of the flow's routes and the mix's those that load no port longer. The former have fewer pieces
// as a rule, and are as good in nine of ten cases.
absl::StatusOr<RackRoutes> RouteWithRacks(const RoutingProblem& problem) {
  const Demands& demands = problem.groups.demands;
  const DeliveryMix& mix = problem.bound.mix;
  const double good_seconds = problem.bound.seconds().ToDouble() * kAsGoodAsBound;
  RackRoutes result;
  ASSIGN_OR_RETURN(result.routes, RouteByFlow(problem));
  RouteLoad load = LoadOfRoutes(demands, result.routes, problem.network);
  double planned_seconds = load.busiest_seconds;
  if (load.busiest_seconds > good_seconds && !mix.parts.empty()) {
    planned_seconds = std::min(planned_seconds, mix.mixed_seconds);  // the rest is rounding
    HostRoutes mixed = RoutesOfMix(demands, mix);
    const RouteLoad mixed_load = LoadOfRoutes(demands, mixed, problem.network);
    if (mixed_load.busiest_seconds < load.busiest_seconds) {
      result.routes = std::move(mixed);
      load = mixed_load;
    }
  }
  if (planned_seconds > good_seconds) result.planned_seconds = planned_seconds;
  result.search = absl::StrCat(", racks entered by ", load.crossing_bytes, " bytes, ",
                               LeastCrossingBytes(demands, problem.network), " at least");
  return result;
}

}  // namespace

absl::StatusOr<Routes> RouteByRelays(const RoutingProblem& problem, int64_t fan_out) {
  const Demands& demands = problem.groups.demands;
  RackRoutes between_hosts;
  if (problem.network.has_racks()) {
    ASSIGN_OR_RETURN(between_hosts, RouteWithRacks(problem));
  } else {
    ASSIGN_OR_RETURN(between_hosts.routes, RouteByFlow(problem, fan_out));
  }
  const auto& [host_routes, planned_seconds, search] = between_hosts;
  RETURN_IF_ERROR(CheckPiecesOfClasses(problem, host_routes));
  RelayExpansion expansion(problem, host_routes);
  const ClassIndex classes = static_cast<ClassIndex>(problem.slicing.classes().size());
  for (ClassIndex c = 0; c < classes; ++c) {
    expansion.RouteClass(c);
    RETURN_IF_ERROR(CheckRelayCount("relay", expansion.relays()));
  }
  Routes routes = std::move(expansion).Finish();
  routes.planned_seconds = planned_seconds;
  routes.search = absl::StrCat(demands.demands.size(), " groups, ", host_routes.pieces.size(),
                               " pieces, ", problem.bound.flows, " flows for the bound", search);
  if (fan_out > 1) absl::StrAppend(&routes.search, ", trees of fan-out ", fan_out);
  return routes;
}

}  // namespace crossmesh
