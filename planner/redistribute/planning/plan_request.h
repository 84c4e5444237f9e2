#pragma once

#include "common/base/cancel_check.h"
#include "common/plan/plan.h"
#include "planner/reshard/plan_reshard.h"

#include <absl/status/statusor.h>

namespace crossmesh {

// The plan of a request, whatever its strategy: PlanReshard's, or PlanRedistribution's.
absl::StatusOr<Plan> PlanRequest(const ReshardRequest& request,
                                 CancelCheck cancelled = NeverCancelled);

}  // namespace crossmesh
