#include "controller/reshard/plan_reshard.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/plan/slicing.h"
#include "controller/network/bound.h"
#include "controller/network/demands.h"
#include "controller/network/host_network.h"
#include "controller/network/port_load.h"
#include "controller/network/routing.h"
#include "controller/reshard/published/broadcast.h"
#include "controller/reshard/published/global_all_gather.h"
#include "controller/reshard/published/local_all_gather.h"
#include "controller/reshard/published/send_recv.h"
#include "controller/reshard/relay_strategy.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::StatusOr<Routes> RouteBy(Strategy strategy, const RoutingProblem& problem) {
  switch (strategy) {
    case Strategy::kRelay:
      return RouteByRelays(problem);
    case Strategy::kSendRecv:
      return RouteBySendRecv(problem);
    case Strategy::kLocalAllGather:
      return RouteByLocalAllGather(problem);
    case Strategy::kGlobalAllGather:
      return RouteByGlobalAllGather(problem);
    case Strategy::kBroadcastNaive:
      return RouteByBroadcast(problem, BroadcastOrder::kNaive);
    case Strategy::kBroadcastSize:
      return RouteByBroadcast(problem, BroadcastOrder::kSize);
    case Strategy::kBroadcastGreedy:
      return RouteByBroadcast(problem, BroadcastOrder::kGreedy);
  }
  return absl::InternalError(absl::StrCat("strategy number ", static_cast<int>(strategy)));
}

std::vector<LocalCopy> CopiesInPlace(const Slicing& slicing) {
  std::vector<LocalCopy> copies;
  std::vector<DeviceRank> devices;
  const ClassIndex classes = static_cast<ClassIndex>(slicing.classes().size());
  for (ClassIndex c = 0; c < classes; ++c) {
    devices.clear();
    std::ranges::set_intersection(slicing.holders(c), slicing.needers(c),
                                  std::back_inserter(devices));
    for (const DeviceRank device : devices) copies.push_back({.slice_class = c, .device = device});
  }
  return copies;
}

void SetBusiestHost(const PortLoad& load, const HostNetwork& network, PlanFigures& figures) {
  for (size_t host = 0; host < network.hosts.size(); ++host) {
    const int64_t bytes = std::max(load.host_out[host], load.host_in[host]);
    if (bytes <= figures.busiest_host_bytes) continue;
    figures.busiest_host_bytes = bytes;
    figures.busiest_host = network.hosts[host];
  }
}

PlanFigures FiguresOf(const ReshardRequest& request, const RoutingProblem& problem,
                      const Routes& routes) {
  const PortLoad load = ComputePortLoad(problem.tensors, problem.network, routes);
  PlanFigures figures{
      .strategy = std::string(StrategyName(request.strategy)),
      .bound = ToBound(problem.bound, problem.network),
      .predicted_seconds = std::max(routes.model_seconds,
                                    PredictSeconds(load, problem.network, request.chunk_bytes)),
      .assumed_rates = problem.network.assumed_rates,
      .depth = load.depth,
      .network_bytes = load.network_bytes,
      .search = routes.search};
  const Demands& demands = problem.groups.demands;
  for (const Demand& demand : demands.demands) {
    figures.least_network_bytes +=
        demand.bytes * static_cast<int64_t>(demands.receivers(demand).size());
  }
  SetBusiestHost(load, problem.network, figures);
  return figures;
}

absl::Status CheckChunkBytes(int64_t chunk_bytes) {
  if (chunk_bytes > 0 && chunk_bytes % Plan::kLeafBytes == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("chunk size: expected a positive multiple of ",
                                                 Plan::kLeafBytes, " bytes, found ", chunk_bytes));
}

}  // namespace

absl::StatusOr<Plan> PlanReshard(const ReshardRequest& request, CancelCheck cancelled) {
  CHECK(request.tensors != nullptr);
  RETURN_IF_ERROR(CheckChunkBytes(request.chunk_bytes));
  const TensorTable& tensors = *request.tensors;
  ASSIGN_OR_RETURN(Slicing created, Slicing::Create(tensors));
  RETURN_IF_ERROR(CheckWanted(cancelled));
  const auto slicing = std::make_shared<const Slicing>(std::move(created));
  const HostNetwork network = HostNetworkOf(tensors, request.topology);
  const HostGroups groups = GroupByHosts(tensors, *slicing);
  const ExactBound bound = ComputeBound(groups.demands, network);
  RETURN_IF_ERROR(CheckWanted(cancelled));
  const RoutingProblem problem{.tensors = tensors,
                               .slicing = *slicing,
                               .network = network,
                               .groups = groups,
                               .bound = bound,
                               .seed = request.seed,
                               .cancelled = cancelled};
  ASSIGN_OR_RETURN(Routes routes, RouteBy(request.strategy, problem));
  RETURN_IF_ERROR(CheckWanted(cancelled));
  AssignPlacesAndPeriods(tensors, routes);
  PlanFigures figures = FiguresOf(request, problem, routes);
  return Plan::Create({.tensors = request.tensors,
                       .slicing = slicing,
                       .relays = std::move(routes.relays),
                       .hops = std::move(routes.hops),
                       .copies = CopiesInPlace(*slicing),
                       .chunk_bytes = request.chunk_bytes,
                       .binding = request.binding,
                       .shared_storage = request.shared_storage,
                       .figures = std::move(figures)});
}

}  // namespace crossmesh
