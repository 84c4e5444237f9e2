#include "planner/reshard/mixed_plan.h"

#include "common/base/status_macros.h"
#include "planner/network/bound.h"
#include "planner/network/demands.h"
#include "planner/network/gpu_network.h"
#include "planner/network/host_network.h"
#include "planner/network/port_load.h"
#include "planner/network/routing.h"
#include "planner/reshard/gpu_relays.h"
#include "planner/reshard/host_chunks.h"
#include "planner/reshard/rack_routes.h"
#include "planner/reshard/relay_strategy.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

std::vector<bool> GpusAmong(const TensorTable& tensors, const Topology& topology) {
  std::vector<bool> gpus;
  for (const DeviceId& device : tensors.devices()) {
    gpus.push_back(topology.FindGpu(device) != nullptr);
  }
  return gpus;
}

// Bytes that each of these devices copies to itself.
std::vector<int64_t> CopiedBytes(const std::vector<LocalCopy>& copies, const Slicing& slicing,
                                 std::span<const DeviceRank> over_gpus, size_t devices) {
  std::vector<int64_t> copied(devices);
  for (const LocalCopy& copy : copies) {
    if (!std::ranges::binary_search(over_gpus, copy.device)) continue;
    copied[copy.device] += slicing.classes()[copy.slice_class].bytes;
  }
  return copied;
}

// Relays of `more` go after those that are there.
void Append(Routes more, Routes& routes) {
  const int64_t first_hop = std::ssize(routes.hops);
  for (Relay& relay : more.relays) relay.first_hop += first_hop;
  routes.relays.insert(routes.relays.end(), more.relays.begin(), more.relays.end());
  routes.hops.insert(routes.hops.end(), more.hops.begin(), more.hops.end());
}

class MixedPlanner {
 public:
  explicit MixedPlanner(const MixedRequest& mixed)
      : mixed_(mixed),
        tensors_(*mixed.request.tensors),
        gpus_(GpusAmong(tensors_, mixed.topology)),
        network_(HostNetworkOf(tensors_, mixed.topology)),
        gpu_network_(GpuNetworkAmong(tensors_, mixed.topology)),
        copies_(CopiesInPlace(*mixed.slicing)),
        copied_(CopiedBytes(copies_, *mixed.slicing, mixed.over_gpus, tensors_.devices().size())) {}

  absl::StatusOr<Plan> Make() {
    const auto is_over_gpus = [this](DeviceRank device) { return IsOverGpus(device); };
    const Slicing to_gpus = mixed_.slicing->WithOnly(
        [this](DeviceRank device) { return mixed_.is_step ? IsOverGpus(device) : gpus_[device]; },
        is_over_gpus);
    const HostGroups gpu_groups = GroupByDevices(tensors_, to_gpus);
    ASSIGN_OR_RETURN(GpuRelays over_gpus,
                     RelayBetweenGpus({.tensors = tensors_,
                                       .slicing = to_gpus,
                                       .groups = gpu_groups,
                                       .network = gpu_network_,
                                       .copied = copied_,
                                       .chunk_bytes = mixed_.request.chunk_bytes,
                                       .cancelled = mixed_.cancelled}));
    ASSIGN_OR_RETURN(Routes by_hosts, RouteByHosts());
    RETURN_IF_ERROR(CheckWanted(mixed_.cancelled));
    const StepSizes sizes = ChooseSizes(over_gpus, by_hosts);
    const double seconds = SecondsOf(over_gpus, by_hosts, sizes);
    std::string search =
        absl::StrCat("over GPUs ", over_gpus.routes.search, "; by host memory ", by_hosts.search);
    Routes routes = std::move(over_gpus.routes);
    Append(std::move(by_hosts), routes);
    AssignPlacesAndPeriods(tensors_, routes);
    PlanFigures figures = FiguresOf(routes, seconds);
    figures.search = std::move(search);
    const ReshardRequest& request = mixed_.request;
    return Plan::Create(
        {.tensors = request.tensors,
         .slicing = mixed_.slicing,
         .relays = std::move(routes.relays),
         .hops = std::move(routes.hops),
         .copies = std::move(copies_),
         .over_gpus = mixed_.is_step ? std::vector<DeviceRank>() : mixed_.over_gpus,
         .chunk_bytes = sizes.chunk_bytes,
         .periods = sizes.periods,
         .least_run_ns = LeastNanoseconds(request.nic_share < 1, figures.bound.seconds),
         .binding = request.binding,
         .shared_storage = request.shared_storage,
         .figures = std::move(figures)});
  }

 private:
  bool IsOverGpus(DeviceRank device) const {
    return std::ranges::binary_search(mixed_.over_gpus, device);
  }

  bool MaySendToHosts(DeviceRank device) const { return !mixed_.is_step || !IsOverGpus(device); }

  absl::StatusOr<Routes> RouteByHosts() {
    const Slicing to_hosts =
        mixed_.slicing->WithOnly([this](DeviceRank device) { return MaySendToHosts(device); },
                                 [this](DeviceRank device) { return !IsOverGpus(device); });
    const HostGroups groups = GroupByHosts(tensors_, to_hosts);
    host_chunk_bytes_ = mixed_.request.chunk_bytes > 0 ? mixed_.request.chunk_bytes
                                                       : HostChunkBytes(groups.demands, network_);
    host_chunk_bytes_ = ShareOfNic(host_chunk_bytes_, network_, mixed_.topology);
    ExactBound bound = ComputeBound(groups.demands, network_);
    RETURN_IF_ERROR(AddMix(groups.demands, network_, bound));
    ASSIGN_OR_RETURN(Routes routes,
                     RouteByRelays({.tensors = tensors_,
                                    .slicing = to_hosts,
                                    .network = network_,
                                    .groups = groups,
                                    .bound = bound,
                                    .seed = mixed_.request.seed,
                                    .no_rings = mixed_.request.beside == Beside::kTransfers,
                                    .cancelled = mixed_.cancelled}));
    AssignPlacesAndPeriods(tensors_, routes);
    host_load_ = ComputePortLoad(tensors_, network_, routes);
    return routes;
  }

  StepSizes ChooseSizes(const GpuRelays& over_gpus, const Routes& by_hosts) const {
    const BusiestPort busiest = FindBusiestPort(host_load_, network_);
    const StepSizes of_hosts = {.chunk_bytes = host_chunk_bytes_,
                                .periods = PeriodsOf(busiest, host_chunk_bytes_)};
    const std::array<StepSizes, 2> either = {over_gpus.sizes, of_hosts};
    return *std::ranges::min_element(
        either, {}, [&](const StepSizes& sizes) { return SecondsOf(over_gpus, by_hosts, sizes); });
  }

  double SecondsOf(const GpuRelays& over_gpus, const Routes& by_hosts,
                   const StepSizes& sizes) const {
    const double gpu_seconds = PredictSteps(gpu_network_, over_gpus.routes, copied_, sizes).seconds;
    const BusiestPort busiest = FindBusiestPort(host_load_, network_);
    const int64_t periods = std::max<int64_t>(1, sizes.periods);
    const int64_t chunk_bytes = std::clamp<int64_t>(busiest.bytes / periods, 1, sizes.chunk_bytes);
    const double host_seconds = busiest.seconds + FillSeconds(host_load_, busiest, chunk_bytes);
    return gpu_seconds + std::max(by_hosts.model_seconds, host_seconds);
  }

  PlanFigures FiguresOf(const Routes& routes, double seconds) const {
    const HostGroups groups = GroupByHosts(tensors_, *mixed_.slicing);
    const Bound bound = ToBound(ComputeBound(groups.demands, network_), network_);
    const PortLoad load = ComputePortLoad(tensors_, network_, routes);
    const double busiest_seconds = std::max(bound.seconds, FindBusiestPort(load, network_).seconds);
    const BusiestHost host = FindBusiestHost(load, network_);
    PlanFigures figures{.strategy = std::string(StrategyName(mixed_.request.strategy)),
                        .bound = bound,
                        // Rounding must not put an execution below its bound.
                        .predicted_seconds = std::max(seconds, busiest_seconds),
                        .assumed_rates = network_.assumed_rates,
                        .depth = load.depth,
                        .network_bytes = load.network_bytes,
                        .busiest_host_bytes = host.bytes,
                        .busiest_host = host.name};
    figures.excess.routing_seconds = busiest_seconds - bound.seconds;
    figures.excess.fill_seconds = figures.predicted_seconds - busiest_seconds;
    figures.least_network_bytes = LeastBytes(groups.demands);
    return figures;
  }

  const MixedRequest& mixed_;
  const TensorTable& tensors_;
  const std::vector<bool> gpus_;  // by device
  const HostNetwork network_;
  const GpuNetwork gpu_network_;
  std::vector<LocalCopy> copies_;
  const std::vector<int64_t> copied_;  // by device over GPUs
  int64_t host_chunk_bytes_ = 0;
  PortLoad host_load_;  // of the half by host memory
};

}  // namespace

std::vector<DeviceRank> ReceiversOverGpus(const TensorTable& tensors, const Slicing& slicing,
                                          const Topology& topology) {
  const std::vector<bool> gpus = GpusAmong(tensors, topology);
  if (std::ranges::find(gpus, true) == gpus.end()) return {};
  std::vector<bool> needs(gpus.size()), lacks(gpus.size());
  for (ClassIndex c = 0; c < static_cast<ClassIndex>(slicing.classes().size()); ++c) {
    const std::span<const DeviceRank> holders = slicing.holders(c);
    const bool is_on_gpu =
        std::ranges::any_of(holders, [&](DeviceRank device) { return gpus[device]; });
    for (const DeviceRank device : slicing.receivers(c)) {
      needs[device] = true;
      if (!is_on_gpu) lacks[device] = true;
    }
  }
  std::vector<DeviceRank> over_gpus;
  for (DeviceRank device = 0; device < static_cast<DeviceRank>(gpus.size()); ++device) {
    if (gpus[device] && needs[device] && !lacks[device]) over_gpus.push_back(device);
  }
  return over_gpus;
}

double SecondsOverGpus(const Plan& plan, std::span<const DeviceRank> over_gpus,
                       const Topology& topology) {
  Routes routes;
  for (const Relay& relay : plan.relays()) {
    const std::span<const Hop> hops = plan.hops(relay);
    if (!std::ranges::binary_search(over_gpus, hops.front().to)) continue;
    Relay& added = routes.relays.emplace_back(relay);
    added.first_hop = std::ssize(routes.hops);
    routes.hops.insert(routes.hops.end(), hops.begin(), hops.end());
  }
  const std::vector<int64_t> copied =
      CopiedBytes(plan.spec().copies, plan.slicing(), over_gpus, plan.tensors().devices().size());
  const StepSizes sizes = {.chunk_bytes = plan.chunk_bytes(), .periods = plan.periods()};
  return PredictSteps(GpuNetworkAmong(plan.tensors(), topology), routes, copied, sizes).seconds;
}

absl::StatusOr<Plan> PlanMixed(const MixedRequest& mixed) { return MixedPlanner(mixed).Make(); }

}  // namespace crossmesh
