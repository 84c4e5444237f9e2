#pragma once

#include "common/mesh/topology.h"
#include "common/plan/plan.h"
#include "common/plan/proof.h"
#include "common/reshard/reshard_inputs.h"
#include "crossmesh/v1/reshard.pb.h"
#include "crossmesh/v1/reshard_service.pb.h"
#include "planner/reshard/plan_reshard.h"

#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

class Client;

// A plan made in this process, and what it was made for.
struct LocalPlan {
  Plan plan;
  Proof proof;
  Topology topology;
  absl::Duration duration;

  v1::PlanSummary Summary() const;
};

// What a request says of what to plan. FailedPrecondition, naming the field: it names something
// that only a controller knows; otherwise what the codec finds.
absl::StatusOr<ReshardInputs> ReadInputs(const v1::ReshardSpec& spec);

// What a planner of this process takes, and what a proof holds the plan to.
struct LocalRequest {
  ReshardRequest reshard;
  ProofLimits limits;
};
// Errors are those of ReadInputs and BuildReshardTensors.
absl::StatusOr<LocalRequest> MakeLocalRequest(const v1::ReshardSpec& spec);

// The same with what the controller knows by these names, and of the network, in their place.
absl::StatusOr<v1::ReshardSpec> WithNamedObjects(Client& client, v1::ReshardSpec spec);

// Plans and proves as a controller does, in this process. Errors are those of ReadInputs,
// BuildReshardTensors, PlanRequest and Prove.
absl::StatusOr<LocalPlan> MakeLocalPlan(const v1::ReshardSpec& spec);

// What a controller would answer with this plan: its summary, and its text where that is asked for.
v1::PlanReshardResponse ResponseOf(const LocalPlan& made, const v1::PlanReshardRequest& request);

}  // namespace crossmesh
