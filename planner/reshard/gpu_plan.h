#pragma once

#include "common/base/cancel_check.h"
#include "common/plan/plan.h"
#include "planner/network/gpu_network.h"
#include "planner/reshard/plan_reshard.h"

#include <memory>

#include <absl/status/statusor.h>

namespace crossmesh {

// The plan of a request between devices that are all GPUs: routes by the ports that GPUs have
// (gpu_routes.h, or the published strategy of the request), chunks and periods such that steps are
// long enough (gpu_steps.h). Of two orders, all pieces side by side or each GPU's one after the
// other, the one that is predicted to take less time.
//
// Errors as PlanReshard.
absl::StatusOr<Plan> PlanBetweenGpus(const ReshardRequest& request,
                                     const std::shared_ptr<const Slicing>& slicing,
                                     const GpuNetwork& network, CancelCheck cancelled);

}  // namespace crossmesh
