#include "planner/reshard/plan_reshard.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/plan/slicing.h"
#include "planner/network/bound.h"
#include "planner/network/demands.h"
#include "planner/network/gpu_network.h"
#include "planner/network/host_network.h"
#include "planner/network/port_load.h"
#include "planner/network/routing.h"
#include "planner/network/simulator.h"
#include "planner/reshard/avoid_links.h"
#include "planner/reshard/broadcast_choice.h"
#include "planner/reshard/even_pace.h"
#include "planner/reshard/fan_out.h"
#include "planner/reshard/gpu_plan.h"
#include "planner/reshard/host_chunks.h"
#include "planner/reshard/mixed_plan.h"
#include "planner/reshard/published_routes.h"
#include "planner/reshard/rack_routes.h"
#include "planner/reshard/relay_strategy.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Simulated in some milliseconds.
constexpr int64_t kPredictionTransfersMax = int64_t{1} << 13;
// Of an even pace: a chunk to each peer in such a time. With shorter ones it was not measured.
constexpr double kPacedPeriodSecondsMin = 1e-3;

absl::StatusOr<Routes> RouteBy(Strategy strategy, const RoutingProblem& problem) {
  return strategy == Strategy::kRelay ? RouteByRelays(problem)
                                      : RouteAsPublished(strategy, problem);
}

// What routes put on the ports of the network.
struct RoutedLoad {
  PortLoad ports;
  BusiestPort busiest;
  int64_t period_bytes = 0;
};

PlanFigures FiguresOf(const ReshardRequest& request, const RoutingProblem& problem,
                      const Routes& routes, const RoutedLoad& load) {
  PlanFigures figures{.strategy = std::string(StrategyName(request.strategy)),
                      .bound = ToBound(problem.bound, problem.network),
                      .assumed_rates = problem.network.assumed_rates,
                      .depth = load.ports.depth,
                      .network_bytes = load.ports.network_bytes,
                      .search = routes.search};
  const double planned_seconds = std::max(figures.bound.seconds, routes.planned_seconds);
  figures.excess = {
      .rounding_seconds = std::max(0.0, load.busiest.seconds - planned_seconds),
      .routing_seconds = planned_seconds - figures.bound.seconds,
      .fill_seconds = FillSeconds(load.ports, load.busiest, load.period_bytes),
  };
  figures.predicted_seconds =
      std::max(routes.model_seconds, load.busiest.seconds + figures.excess.fill_seconds);
  figures.least_network_bytes = LeastBytes(problem.groups.demands);
  const BusiestHost host = FindBusiestHost(load.ports, problem.network);
  figures.busiest_host_bytes = host.bytes;
  figures.busiest_host = host.name;
  return figures;
}

absl::Status CheckChunkBytes(int64_t chunk_bytes) {
  if (chunk_bytes >= 0 && chunk_bytes <= Plan::kChunkBytesMax &&
      chunk_bytes % Plan::kLeafBytes == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("chunk size: expected a multiple of ", Plan::kLeafBytes, " up to ",
                   Plan::kChunkBytesMax, " bytes, or 0 for the default, found ", chunk_bytes));
}

absl::Status CheckShare(double nic_share) {
  if (nic_share > 0 && nic_share <= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("nic_share: expected a number above 0 and at most 1, found ", nic_share));
}

// Of what only GPUs can run. `tensors` has a device that is none.
absl::Status NotAllGpus(const TensorTable& tensors, const Topology& topology) {
  const auto other = std::ranges::find_if(
      tensors.devices(), [&](const DeviceId& d) { return topology.FindGpu(d) == nullptr; });
  CHECK(other != tensors.devices().end());
  return absl::InvalidArgumentError(absl::StrCat(
      "strategy m2n: expected GPUs alone, as the network's description has them, found ",
      ToString(*other)));
}

// With the simulator's prediction, where the simulation is short.
absl::StatusOr<Plan> Predict(Plan plan, const Topology& topology, CancelCheck cancelled) {
  const SimulatorOptions options = {.sharing = PortSharingRule::kPlanned,
                                    .transfers_max = kPredictionTransfersMax};
  const absl::StatusOr<SimulatedTimeline> run = Simulate(plan, topology, options, cancelled);
  // Too many chunks to simulate in some milliseconds: the estimate by port loads stays.
  if (absl::IsResourceExhausted(run.status())) return plan;
  if (!run.ok()) return run.status();
  // Rounding must not put an execution below its bound.
  const double seconds = std::max(run->seconds, plan.figures().bound.seconds);
  return std::move(plan).WithPrediction(seconds);
}

// What all plans of a request have in common.
struct Planning {
  const ReshardRequest& request;
  const Topology& topology;  // what the plan may use of the request's
  const RoutingProblem& problem;
  const std::shared_ptr<const Slicing>& slicing;
  int64_t chunk_bytes = 0;
};

HostLinks LinksOf(const ReshardRequest& request, const HostNetwork& network) {
  HostLinks links;
  if (request.failed_links.empty()) return links;
  const auto hosts = static_cast<HostRank>(network.hosts.size());
  for (HostRank from = 0; from < hosts; ++from) {
    for (HostRank to = 0; to < hosts; ++to) {
      if (request.failed_links.contains({network.hosts[from], network.hosts[to]})) {
        links.emplace(from, to);
      }
    }
  }
  return links;
}

absl::StatusOr<Plan> MakePlan(const Planning& planning, Routes routes, int64_t fan_out = 1) {
  const auto& [request, topology, problem, slicing, chunk_bytes] = planning;
  routes = AvoidLinks(problem, LinksOf(request, problem.network), std::move(routes));
  AssignPlacesAndPeriods(problem.tensors, routes);
  RoutedLoad load = {.ports = ComputePortLoad(problem.tensors, problem.network, routes),
                     .period_bytes = PeriodBytes(chunk_bytes, fan_out)};
  load.busiest = FindBusiestPort(load.ports, problem.network);
  PlanFigures figures = FiguresOf(request, problem, routes, load);
  const int32_t periods = PeriodsOf(load.busiest, load.period_bytes);
  const bool keeps_pace =
      request.nic_share < 1 ||
      (request.strategy == Strategy::kRelay && request.beside == Beside::kNothing &&
       figures.bound.seconds >= kPacedPeriodSecondsMin * periods &&
       WantsEvenPace(problem.tensors, problem.network, routes, load.ports));
  Plan::Spec spec{.tensors = request.tensors,
                  .slicing = slicing,
                  .relays = std::move(routes.relays),
                  .hops = std::move(routes.hops),
                  .copies = CopiesInPlace(*slicing),
                  .chunk_bytes = chunk_bytes,
                  .periods = periods,
                  .least_run_ns = LeastNanoseconds(keeps_pace, figures.bound.seconds),
                  .binding = request.binding,
                  .shared_storage = request.shared_storage,
                  .figures = std::move(figures)};
  if (request.strategy == Strategy::kRelay && !request.no_broadcasts) {
    ChooseBroadcasts(problem.network, topology.gpu_costs(), spec);
  }
  ASSIGN_OR_RETURN(Plan plan, Plan::Create(std::move(spec)));
  return Predict(std::move(plan), topology, problem.cancelled);
}

std::vector<DeviceRank> RanksOf(const std::vector<DeviceId>& devices, const TensorTable& tensors) {
  std::vector<DeviceRank> ranks;
  for (const DeviceId& device : devices) {
    const std::optional<DeviceRank> rank = tensors.FindDevice(device);
    if (rank.has_value()) ranks.push_back(*rank);
  }
  std::ranges::sort(ranks);
  return ranks;
}

// The plan or, where it would end late because of its depth, one that fans out, if that is
// predicted to end sooner.
absl::StatusOr<Plan> FlattenIfFaster(const Planning& planning, Plan plan) {
  const int64_t fan_out = ChooseFanOut(planning.problem, plan);
  if (fan_out == 1) return plan;
  RETURN_IF_ERROR(CheckWanted(planning.problem.cancelled));
  absl::StatusOr<Routes> routes = RouteByRelays(planning.problem, fan_out);
  // Trees have more relays than chains, perhaps more than there may be; the chains will do.
  if (absl::IsResourceExhausted(routes.status())) return plan;
  if (!routes.ok()) return routes.status();
  ASSIGN_OR_RETURN(Plan flat, MakePlan(planning, *std::move(routes), fan_out));
  // The choice was by an estimate of depth alone; the simulated prediction has the last word.
  return flat.figures().predicted_seconds < plan.figures().predicted_seconds ? std::move(flat)
                                                                             : std::move(plan);
}

}  // namespace

absl::StatusOr<Plan> PlanReshard(const ReshardRequest& request, CancelCheck cancelled) {
  CHECK(request.tensors != nullptr);
  if (request.strategy == Strategy::kRedistribute) {
    return absl::InvalidArgumentError("strategy redistribute: expected a strategy of one step");
  }
  RETURN_IF_ERROR(CheckShare(request.nic_share));
  RETURN_IF_ERROR(CheckChunkBytes(request.chunk_bytes));
  std::optional<Topology> share;
  // A share of every NIC is planned as a slower network, so that bound, routes and prediction agree
  // on what may be used.
  if (request.nic_share < 1) share = request.topology.WithShare(request.nic_share);
  const Topology& topology = share.has_value() ? *share : request.topology;
  const TensorTable& tensors = *request.tensors;
  ASSIGN_OR_RETURN(Slicing created, Slicing::Create(tensors));
  RETURN_IF_ERROR(CheckWanted(cancelled));
  RETURN_IF_ERROR(CheckClassCounts(StrategyName(request.strategy), created));
  const auto slicing = std::make_shared<const Slicing>(std::move(created));
  if (const std::optional<GpuNetwork> gpus = GpuNetworkOf(tensors, topology); gpus.has_value()) {
    return PlanBetweenGpus(request, slicing, *gpus, cancelled);
  }
  if (request.strategy == Strategy::kM2n) return NotAllGpus(tensors, topology);
  if (request.strategy == Strategy::kRelay) {
    std::vector<DeviceRank> over_gpus = request.over_gpus.has_value()
                                            ? RanksOf(*request.over_gpus, tensors)
                                            : ReceiversOverGpus(tensors, *slicing, topology);
    if (!over_gpus.empty()) {
      return PlanMixed({.request = request,
                        .topology = topology,
                        .slicing = slicing,
                        .over_gpus = std::move(over_gpus),
                        .is_step = request.over_gpus.has_value(),
                        .cancelled = cancelled});
    }
  }
  const HostNetwork network = HostNetworkOf(tensors, topology);
  const HostGroups groups = GroupByHosts(tensors, *slicing);
  int64_t chunk_bytes = request.chunk_bytes;
  if (chunk_bytes == 0) chunk_bytes = HostChunkBytes(groups.demands, network);
  ExactBound bound = ComputeBound(groups.demands, network);
  RETURN_IF_ERROR(AddMix(groups.demands, network, bound));
  RETURN_IF_ERROR(CheckWanted(cancelled));
  const RoutingProblem problem{.tensors = tensors,
                               .slicing = *slicing,
                               .network = network,
                               .groups = groups,
                               .bound = bound,
                               .seed = request.seed,
                               .no_rings = request.beside == Beside::kTransfers,
                               .cancelled = cancelled};
  ASSIGN_OR_RETURN(Routes routes, RouteBy(request.strategy, problem));
  RETURN_IF_ERROR(CheckWanted(cancelled));
  const Planning planning{.request = request,
                          .topology = topology,
                          .problem = problem,
                          .slicing = slicing,
                          .chunk_bytes = ShareOfNic(chunk_bytes, network, topology)};
  ASSIGN_OR_RETURN(Plan plan, MakePlan(planning, std::move(routes)));
  if (request.strategy != Strategy::kRelay) return plan;
  return FlattenIfFaster(planning, std::move(plan));
}

}  // namespace crossmesh
