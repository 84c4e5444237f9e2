#include "planner/redistribute/planning/course_figures.h"

#include "common/base/status_macros.h"
#include "planner/network/bound.h"
#include "planner/network/demands.h"
#include "planner/network/gpu_bound.h"
#include "planner/network/gpu_network.h"
#include "planner/network/host_network.h"
#include "planner/reshard/rack_routes.h"

#include <algorithm>
#include <optional>
#include <string>

namespace crossmesh {
namespace {

absl::StatusOr<PlanFigures> BoundOnHosts(const ReshardRequest& request, const Slicing& slicing) {
  const HostNetwork network = HostNetworkOf(*request.tensors, request.topology);
  const HostGroups groups = GroupByHosts(*request.tensors, slicing);
  ExactBound bound = ComputeBound(groups.demands, network);
  RETURN_IF_ERROR(AddMix(groups.demands, network, bound));
  return PlanFigures{.bound = ToBound(bound, network),
                     .assumed_rates = network.assumed_rates,
                     .least_network_bytes = LeastBytes(groups.demands)};
}

PlanFigures BoundBetweenGpus(const ReshardRequest& request, const Slicing& slicing,
                             const GpuNetwork& network) {
  const HostGroups groups = GroupByDevices(*request.tensors, slicing);
  return PlanFigures{
      .bound = BoundOfGpus(groups.demands, network),
      .least_network_bytes = LeastBytes(DemandsBetweenHosts(groups.demands, network))};
}

// Adds a course's.
void Add(const Course<Plan>& course, bool overlaps, PlanFigures& figures) {
  double once = 0;
  double longest = 0;
  for (const Course<Plan>::Step& step : course.steps) {
    const PlanFigures& of_step = step.move->figures();
    once += of_step.predicted_seconds;
    longest = std::max(longest, of_step.predicted_seconds);
    figures.depth = std::max(figures.depth, of_step.depth);
    figures.network_bytes += of_step.network_bytes * course.instances;
  }
  figures.predicted_seconds += once + (overlaps ? longest : once) * (course.instances - 1);
}

}  // namespace

absl::StatusOr<PlanFigures> FiguresOfCourses(const ReshardRequest& request, const Slicing& slicing,
                                             const std::vector<Course<Plan>>& courses) {
  const std::optional<GpuNetwork> gpus = GpuNetworkOf(*request.tensors, request.topology);
  absl::StatusOr<PlanFigures> figures =
      gpus.has_value() ? BoundBetweenGpus(request, slicing, *gpus) : BoundOnHosts(request, slicing);
  if (!figures.ok()) return figures;
  figures->strategy = std::string(StrategyName(Strategy::kRedistribute));
  for (const Course<Plan>& course : courses) Add(course, !gpus.has_value(), *figures);
  return figures;
}

}  // namespace crossmesh
