#include "planner/parallelism/programs/joint_cost.h"

#include "common/base/status_macros.h"
#include "common/mesh/layout.h"
#include "common/mesh/mesh.h"
#include "common/mesh/shape.h"
#include "common/plan/step_kind.h"
#include "planner/parallelism/programs/grid_mesh.h"
#include "planner/parallelism/programs/grid_transfers.h"
#include "planner/redistribute/redistribution_request.h"
#include "planner/redistribute/redistribution_search.h"

#include <utility>

namespace crossmesh {
namespace {

constexpr double kWorthwhile = 0.99;

// An axis of the mesh as a link: the ring that it has as an axis of a grid.
CollectiveCost LinksOf(std::span<const Axis> axes, const PositionRates& rates) {
  constexpr double kBytes = 1e9;
  CollectiveCost cost;
  int64_t inside = 1;
  for (auto axis = static_cast<int32_t>(axes.size()); axis-- > 0;) {
    const int64_t size = axes[axis].size;
    const AxisRate& rate = rates.At(inside, size);
    inside *= size;
    if (size == 1) continue;
    const auto others = static_cast<double>(size - 1);
    const double latency = rate.Seconds(CollectiveOp::kAllGather, 0);
    const double of_bytes = rate.Seconds(CollectiveOp::kAllGather, kBytes) - latency;
    cost.links.push_back(
        {.part = {.axis = axis, .before = 1, .size = size},
         .seconds_per_message = latency / others,
         .bytes_per_second = kBytes * others / static_cast<double>(size) / of_bytes});
  }
  return cost;
}

}  // namespace

absl::StatusOr<JointMove> CostOfJoint(const JointRequest& request, const Grid& from, const Grid& to,
                                      const PositionRates& rates) {
  ASSIGN_OR_RETURN(const std::vector<Axis> axes, AxesOfGrids(request.grids));
  ASSIGN_OR_RETURN(const Shape shape,
                   Shape::Create(std::vector<int64_t>{request.rows, request.hidden}));
  RedistributionRequest move{.axes = axes, .shape = shape, .item_bytes = request.item_bytes};
  ASSIGN_OR_RETURN(move.source,
                   EndOf(LayoutBetweenBlocks(AxesOnMesh(from, axes), request.scattered), axes));
  ASSIGN_OR_RETURN(move.destination,
                   EndOf(LayoutBetweenBlocks(AxesOnMesh(to, axes), request.scattered), axes));
  RedistributionOptions options{.cost = LinksOf(axes, rates), .relay = false};
  ASSIGN_OR_RETURN(RedistributionResult found, SearchRedistribution(move, options));
  // Point to point only where that saves something.
  options.relay = true;
  ASSIGN_OR_RETURN(RedistributionResult relayed, SearchRedistribution(move, options));
  if (relayed.derivation.seconds() < kWorthwhile * found.derivation.seconds()) {
    found = std::move(relayed);
  }
  JointMove joint{.seconds = found.derivation.seconds(), .bytes = found.derivation.bytes()};
  for (const RedistributionStep& step : found.derivation.steps()) {
    joint.steps.emplace_back(StepKindName(step.kind));
  }
  return joint;
}

}  // namespace crossmesh
