#include "planner/redistribute/planning/collective_choice.h"

#include "common/base/status_macros.h"
#include "common/plan/course_tables.h"
#include "common/plan/step_collective.h"
#include "planner/network/gpu_network.h"
#include "planner/network/ring_prediction.h"
#include "planner/network/routing.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

RingCollective RingOf(const TensorTable& tensors, const GroupedCollective& collective) {
  const Side pieces = Reduces(collective.kind) ? Side::kDestination : Side::kSource;
  RingCollective ring{.collective = collective, .calls = std::ssize(tensors.group_of_tensor())};
  const DeviceRank device = collective.groups.front().front();
  for (int32_t group = 0; group < std::ssize(tensors.groups()); ++group) {
    ring.piece_bytes +=
        RowsOf(tensors, pieces, group, device).bytes * tensors.tensors_in_group(group);
  }
  if (collective.kind == StepCollective::kAllReduce) ring.piece_bytes /= collective.ranks();
  return ring;
}

// A relay of each class from each device that has it, to the others of its group.
void RouteStraight(const GroupedCollective& gather, Plan::Spec& spec) {
  Routes routes;
  for (ClassIndex c = 0; c < std::ssize(spec.slicing->classes()); ++c) {
    for (const DeviceRank root : spec.slicing->holders(c)) {
      routes.BeginRelay({.slice_class = c, .root = root, .end = spec.slicing->classes()[c].bytes});
      for (const DeviceRank receiver : *gather.GroupOf(root)) {
        if (receiver != root) routes.AddHop(root, receiver);
      }
    }
  }
  AssignPlacesAndPeriods(*spec.tensors, routes);
  spec.relays = std::move(routes.relays);
  spec.hops = std::move(routes.hops);
}

PlanFigures FiguresOf(const PlanFigures& relays, const GpuNetwork& network,
                      const RingCollective& ring, double seconds) {
  PlanFigures figures = relays;
  figures.predicted_seconds = seconds;
  figures.excess = {};
  figures.search = absl::StrCat(StepCollectiveName(ring.collective.kind), " by NCCL");
  if (ring.collective.groups.size() > 1) {
    absl::StrAppend(&figures.search, " in ", ring.collective.groups.size(), " groups of ",
                    ring.collective.ranks());
  }
  // A ring leaves each of several hosts once.
  const std::vector<int32_t> rings = RingsOfHosts(network, ring.collective);
  const int64_t bytes = ring.passes() * ring.piece_bytes;
  figures.network_bytes = std::accumulate(rings.begin(), rings.end(), int64_t{0}) * bytes;
  figures.depth = 0;
  for (const std::vector<DeviceRank>& group : ring.collective.groups) {
    std::set<HostRank> hosts;
    for (const DeviceRank device : group) hosts.insert(network.host_of[device]);
    figures.depth = std::max(figures.depth, static_cast<int32_t>(hosts.size()) - 1);
  }
  figures.busiest_host_bytes = std::ranges::max(rings) * bytes;
  return figures;
}

}  // namespace

absl::Status CheckReductionOrder(absl::string_view name) {
  if (name.empty() || name == kFixedReductionOrder || name == kAnyReductionOrder) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("reduction_order: expected \"",
                                                 kFixedReductionOrder, "\" or \"",
                                                 kAnyReductionOrder, "\", found \"", name, "\""));
}

bool MayUseCollectives(const ReshardRequest& request) {
  const bool overwrites_source = request.shared_storage && request.binding == BindingMode::kInPlace;
  return !request.no_collectives && request.nic_share == 1 && !overwrites_source &&
         !request.redistribution.release_source &&
         GpuNetworkOf(*request.tensors, request.topology).has_value();
}

std::optional<GroupedCollective> CollectiveFor(const ReshardRequest& request,
                                               const TensorTable& step,
                                               const std::optional<Reduction>& reduction) {
  const bool is_allowed =
      !reduction.has_value() || request.redistribution.reduction_order == kAnyReductionOrder;
  return is_allowed ? FindStepCollective(step, reduction) : std::nullopt;
}

CollectiveChoice::CollectiveChoice(const ReshardRequest& request) : request_(request) {}

bool CollectiveChoice::HasRoomFor(const CommunicatorSplit& split) const {
  return split.empty() || std::ranges::count(splits_, split) > 0 ||
         std::ssize(splits_) < kCommunicatorSplitsMax;
}

absl::StatusOr<Course<Plan>::Step> CollectiveChoice::Choose(Course<Plan>::Step step) {
  const TensorTable& tensors = step.move->tensors();
  const std::optional<GroupedCollective> found = CollectiveFor(request_, tensors, step.reduction);
  const std::optional<GpuNetwork> network = GpuNetworkOf(tensors, request_.topology);
  if (!found.has_value() || !network.has_value()) return step;
  const RingCollective ring = RingOf(tensors, *found);
  const double seconds = PredictRing(*network, ring);
  CommunicatorSplit split = SplitFor(*request_.tensors, tensors, *found);
  if (seconds > step.move->figures().predicted_seconds || !HasRoomFor(split)) return step;
  Plan::Spec spec = step.move->spec();
  if (!Reduces(found->kind)) RouteStraight(*found, spec);
  spec.figures = FiguresOf(spec.figures, *network, ring, seconds);
  ASSIGN_OR_RETURN(Plan plan, Plan::Create(std::move(spec)));
  if (!split.empty() && std::ranges::count(splits_, split) == 0) {
    splits_.push_back(std::move(split));
  }
  return Course<Plan>::Step{.move = std::make_shared<const Plan>(std::move(plan)),
                            .reduction = step.reduction,
                            .collective = found->kind};
}

std::string ReductionOrderText(const std::vector<Course<Plan>>& courses) {
  bool has_own = false;
  bool has_rings = false;
  bool has_nccl = false;
  for (const Course<Plan>& course : courses) {
    for (const Course<Plan>::Step& step : course.steps) {
      if (!step.reduction.has_value()) continue;
      (step.collective.has_value() ? has_nccl : step.adds_own ? has_rings : has_own) = true;
    }
  }
  std::vector<absl::string_view> orders;
  if (has_own) orders.push_back("in the order of their coordinates");
  if (has_rings) {
    orders.push_back("round rings, from the host after the one that keeps the sum on");
  }
  if (has_nccl) orders.push_back("in NCCL's own order");
  return orders.empty() ? "" : absl::StrCat(", summands ", absl::StrJoin(orders, ", or "));
}

std::string CollectivesText(const std::vector<Course<Plan>>& courses) {
  std::map<StepCollective, int64_t> steps;
  for (const Course<Plan>& course : courses) {
    for (const Course<Plan>::Step& step : course.steps) {
      if (step.collective.has_value()) ++steps[*step.collective];
    }
  }
  std::string text;
  for (const auto& [collective, count] : steps) {
    absl::StrAppend(&text, text.empty() ? "; by NCCL: " : ", ", count, " ",
                    StepCollectiveName(collective));
  }
  return text;
}

}  // namespace crossmesh
