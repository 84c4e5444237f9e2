#include "planner/redistribute/planning/plan_request.h"

#include "planner/redistribute/planning/plan_redistribution.h"

namespace crossmesh {

absl::StatusOr<Plan> PlanRequest(const ReshardRequest& request, CancelCheck cancelled) {
  return request.strategy == Strategy::kRedistribute ? PlanRedistribution(request, cancelled)
                                                     : PlanReshard(request, cancelled);
}

}  // namespace crossmesh
