#pragma once

#include "common/base/cancel_check.h"
#include "common/mesh/topology.h"
#include "common/plan/plan.h"
#include "common/plan/proof.h"
#include "common/reshard/reshard_inputs.h"
#include "crossmesh/v1/reshard.pb.h"
#include "planner/reshard/plan_reshard.h"

#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// A plan made in this process, and what it was made for.
struct LocalPlan {
  Plan plan;
  Proof proof;
  Topology topology;
  absl::Duration duration;

  v1::PlanSummary Summary() const;
};

// What a planner of this process takes, and what a proof holds the plan to.
struct LocalRequest {
  ReshardRequest reshard;
  ProofLimits limits;
};
// Errors are those of RequestWithoutTensors and BuildReshardTensors.
absl::StatusOr<LocalRequest> MakeLocalRequest(const ReshardInputs& inputs);

// Plans and proves as a controller does, in this process. Errors are those of MakeLocalRequest,
// PlanRequest and Prove.
absl::StatusOr<LocalPlan> MakeLocalPlan(const ReshardInputs& inputs,
                                        CancelCheck cancelled = NeverCancelled);

}  // namespace crossmesh
