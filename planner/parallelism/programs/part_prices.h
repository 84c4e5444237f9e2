#pragma once

#include "planner/parallelism/programs/layer_grids_price.h"
#include "planner/parallelism/step_model.h"

#include <absl/status/status.h>

namespace crossmesh {

// Fills in what follows from the parts and shapes of a price: what each grid's parts take, joints,
// and memory. InvalidArgument: what CostOfJoint finds.
absl::Status PriceParts(const StepModel& step, LayerGridsPrice& price);

}  // namespace crossmesh
