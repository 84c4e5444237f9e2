#include "planner/redistribute/planning/course_figures.h"

#include "common/base/status_macros.h"
#include "planner/network/bound.h"
#include "planner/network/demands.h"
#include "planner/network/gpu_bound.h"
#include "planner/network/gpu_network.h"
#include "planner/network/host_network.h"
#include "planner/network/port_load.h"
#include "planner/redistribute/planning/course_prediction.h"
#include "planner/reshard/mixed_plan.h"
#include "planner/reshard/rack_routes.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace crossmesh {
namespace {

// The devices of a step among those of the whole plan, by their ranks in the step.
std::vector<DeviceRank> RanksIn(const TensorTable& step, const TensorTable& whole,
                                std::span<const DeviceRank> devices) {
  std::vector<DeviceRank> ranks;
  for (const DeviceRank device : devices) {
    const std::optional<DeviceRank> rank = step.FindDevice(whole.devices()[device]);
    if (rank.has_value()) ranks.push_back(*rank);
  }
  std::ranges::sort(ranks);
  return ranks;
}

// What a step has besides what comes to `over_gpus`, predicted to take `seconds`.
absl::StatusOr<Plan> HalfByHosts(const Plan& step, std::span<const DeviceRank> over_gpus,
                                 double seconds) {
  Plan::Spec spec = step.spec();
  spec.relays.clear();
  spec.hops.clear();
  for (const Relay& relay : step.relays()) {
    const std::span<const Hop> hops = step.hops(relay);
    if (std::ranges::binary_search(over_gpus, hops.front().to)) continue;
    spec.relays.push_back(relay);
    spec.relays.back().first_hop = std::ssize(spec.hops);
    spec.hops.insert(spec.hops.end(), hops.begin(), hops.end());
  }
  spec.figures.predicted_seconds = seconds;
  return Plan::Create(std::move(spec));
}

// How long halves take that go one after the other.
absl::StatusOr<double> SecondsOfHalves(const ReshardRequest& request, const HostNetwork& network,
                                       const std::vector<Course<Plan>>& courses,
                                       std::span<const DeviceRank> over_gpus) {
  double seconds = 0;
  std::vector<Course<Plan>> by_hosts = courses;
  for (Course<Plan>& course : by_hosts) {
    for (Course<Plan>::Step& step : course.steps) {
      const std::vector<DeviceRank> gpus =
          RanksIn(step.move->tensors(), *request.tensors, over_gpus);
      const double of_gpus = SecondsOverGpus(*step.move, gpus, request.topology);
      const double of_hosts = step.move->figures().predicted_seconds - of_gpus;
      seconds += of_gpus * course.instances;
      ASSIGN_OR_RETURN(Plan half, HalfByHosts(*step.move, gpus, std::max(0.0, of_hosts)));
      step.move = std::make_shared<const Plan>(std::move(half));
    }
  }
  return seconds + PredictCourses(*request.tensors, by_hosts, network).seconds;
}

absl::StatusOr<PlanFigures> FiguresOnHosts(const ReshardRequest& request, const Slicing& slicing,
                                           const std::vector<Course<Plan>>& courses,
                                           std::span<const DeviceRank> over_gpus) {
  const HostNetwork network = HostNetworkOf(
      *request.tensors,
      request.nic_share < 1 ? request.topology.WithShare(request.nic_share) : request.topology);
  const HostGroups groups = GroupByHosts(*request.tensors, slicing);
  ExactBound bound = ComputeBound(groups.demands, network);
  RETURN_IF_ERROR(AddMix(groups.demands, network, bound));
  PlanFigures figures{.bound = ToBound(bound, network),
                      .assumed_rates = network.assumed_rates,
                      .least_network_bytes = LeastBytes(groups.demands)};
  const CoursePrediction predicted = PredictCourses(*request.tensors, courses, network);
  double seconds = predicted.seconds;
  if (!over_gpus.empty()) {
    ASSIGN_OR_RETURN(seconds, SecondsOfHalves(request, network, courses, over_gpus));
  }
  figures.predicted_seconds = std::max(figures.bound.seconds, seconds);
  figures.depth = predicted.load.depth;
  figures.network_bytes = predicted.load.network_bytes;
  const BusiestHost busiest = FindBusiestHost(predicted.load, network);
  figures.busiest_host = busiest.name;
  figures.busiest_host_bytes = busiest.bytes;
  return figures;
}

PlanFigures FiguresBetweenGpus(const ReshardRequest& request, const Slicing& slicing,
                               const GpuNetwork& network,
                               const std::vector<Course<Plan>>& courses) {
  const HostGroups groups = GroupByDevices(*request.tensors, slicing);
  PlanFigures figures{
      .bound = BoundOfGpus(groups.demands, network),
      .least_network_bytes = LeastBytes(DemandsBetweenHosts(groups.demands, network))};
  for (const Course<Plan>& course : courses) {
    for (const Course<Plan>::Step& step : course.steps) {
      const PlanFigures& of_step = step.move->figures();
      figures.predicted_seconds += of_step.predicted_seconds * course.instances;
      figures.depth = std::max(figures.depth, of_step.depth);
      figures.network_bytes += of_step.network_bytes * course.instances;
    }
  }
  return figures;
}

}  // namespace

absl::StatusOr<PlanFigures> FiguresOfCourses(const ReshardRequest& request, const Slicing& slicing,
                                             const std::vector<Course<Plan>>& courses,
                                             std::span<const DeviceRank> over_gpus) {
  const std::optional<GpuNetwork> gpus = GpuNetworkOf(*request.tensors, request.topology);
  absl::StatusOr<PlanFigures> figures = gpus.has_value()
                                            ? FiguresBetweenGpus(request, slicing, *gpus, courses)
                                            : FiguresOnHosts(request, slicing, courses, over_gpus);
  if (figures.ok()) figures->strategy = std::string(StrategyName(Strategy::kRedistribute));
  return figures;
}

}  // namespace crossmesh
