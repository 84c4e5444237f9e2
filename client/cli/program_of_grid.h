#pragma once

#include "common/mesh/device.h"
#include "planner/layers/layer_program.h"
#include "planner/parallelism/step_model.h"

#include <span>

#include <absl/status/statusor.h>

namespace crossmesh {

// A step on a grid, or on its stages by the schedule of the training, as a program with those
// overlaps. InvalidArgument: a schedule of which there are no programs; what MakeGridProgram finds.
absl::StatusOr<LayerProgram> ProgramOfGrid(const StepModel& step, const GridShape& shape,
                                           std::span<const DeviceId> devices,
                                           const Overlaps& overlaps);

}  // namespace crossmesh
