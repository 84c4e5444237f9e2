#pragma once

#include "client/cli/grid_flags.h"
#include "common/mesh/device.h"
#include "planner/layers/layer_program.h"
#include "planner/parallelism/step_model.h"

#include <cstdint>
#include <span>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

struct LayerGridsPrice;

// What a program has that a grid's price has not.
struct ProgramForm {
  Overlaps overlaps;
  int32_t pending_scatters = 2;
};

// A step on a grid, or on its stages by the schedule of the training, as a program.
// InvalidArgument: a schedule of which there are no programs; what MakeGridProgram finds.
absl::StatusOr<LayerProgram> ProgramOfGrid(const StepModel& step, const GridShape& shape,
                                           std::span<const DeviceId> devices,
                                           const ProgramForm& form);

// Of a grid, or of grids of layers, as a user names them, whether it fits or not. As that; what
// ParseLayerGrids, PriceGrid and PriceLayerGrids find.
absl::StatusOr<LayerProgram> ProgramOfGrid(const GridRequest& request, absl::string_view grid,
                                           std::span<const DeviceId> devices,
                                           const ProgramForm& form);

// The same of layers with grids of their own.
absl::StatusOr<LayerProgram> ProgramOfGrid(const StepModel& step, const LayerGridsPrice& price,
                                           std::span<const DeviceId> devices,
                                           const ProgramForm& form);

}  // namespace crossmesh
