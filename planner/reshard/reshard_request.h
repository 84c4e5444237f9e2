#pragma once

#include "common/mesh/topology.h"
#include "common/reshard/reshard_inputs.h"
#include "planner/reshard/plan_reshard.h"

#include <absl/status/statusor.h>

namespace crossmesh {

// What the planner takes, without the tensors. `topology` is used where the inputs have none. Of
// NCCL M2N only workers know whether they have it: it is not chosen by itself.
// InvalidArgument names the field: no strategy has that name.
absl::StatusOr<ReshardRequest> RequestWithoutTensors(const ReshardInputs& inputs,
                                                     const Topology& topology);

}  // namespace crossmesh
