#pragma once

#include "client/planning/local_plan.h"
#include "common/reshard/reshard_inputs.h"
#include "crossmesh/v1/reshard.pb.h"
#include "crossmesh/v1/reshard_service.pb.h"

#include <absl/status/statusor.h>

namespace crossmesh {

class Client;

// What a request says of what to plan. FailedPrecondition, naming the field: it names something
// that only a controller knows; otherwise what the codec finds.
absl::StatusOr<ReshardInputs> ReadInputs(const v1::ReshardSpec& spec);

// Errors are those of ReadInputs and MakeLocalRequest.
absl::StatusOr<LocalRequest> MakeLocalRequest(const v1::ReshardSpec& spec);

// The same with what the controller knows by these names, and of the network, in their place.
absl::StatusOr<v1::ReshardSpec> WithNamedObjects(Client& client, v1::ReshardSpec spec);

// Errors are those of ReadInputs and MakeLocalPlan.
absl::StatusOr<LocalPlan> MakeLocalPlan(const v1::ReshardSpec& spec);

// What a controller would answer with this plan: its summary, and its text where that is asked for.
v1::PlanReshardResponse ResponseOf(const LocalPlan& made, const v1::PlanReshardRequest& request);

}  // namespace crossmesh
