#pragma once

#include "crossmesh/v1/reshard_service.pb.h"

#include <absl/status/statusor.h>

namespace crossmesh {

// Answers as a controller's PlanReshard does, in this process: plans, proves and explains.
// FailedPrecondition, naming the field: the request names something that only a controller knows;
// otherwise what the codecs, BuildReshardTensors, PlanReshard and Prove find.
absl::StatusOr<v1::PlanReshardResponse> PlanLocally(const v1::PlanReshardRequest& request);

}  // namespace crossmesh
