#include "planner/redistribute/planning/course_figures.h"

#include "common/base/status_macros.h"
#include "planner/network/bound.h"
#include "planner/network/demands.h"
#include "planner/network/gpu_bound.h"
#include "planner/network/gpu_network.h"
#include "planner/network/host_network.h"
#include "planner/network/port_load.h"
#include "planner/redistribute/planning/course_prediction.h"
#include "planner/reshard/rack_routes.h"

#include <algorithm>
#include <optional>
#include <string>

namespace crossmesh {
namespace {

absl::StatusOr<PlanFigures> FiguresOnHosts(const ReshardRequest& request, const Slicing& slicing,
                                           const std::vector<Course<Plan>>& courses) {
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
  figures.predicted_seconds = std::max(figures.bound.seconds, predicted.seconds);
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
                                             const std::vector<Course<Plan>>& courses) {
  const std::optional<GpuNetwork> gpus = GpuNetworkOf(*request.tensors, request.topology);
  absl::StatusOr<PlanFigures> figures = gpus.has_value()
                                            ? FiguresBetweenGpus(request, slicing, *gpus, courses)
                                            : FiguresOnHosts(request, slicing, courses);
  if (figures.ok()) figures->strategy = std::string(StrategyName(Strategy::kRedistribute));
  return figures;
}

}  // namespace crossmesh
