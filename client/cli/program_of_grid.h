#pragma once

#include "client/cli/grid_flags.h"
#include "planner/parallelism/programs/scatter_window.h"
#include "planner/parallelism/step_model.h"

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

struct LayerGridsPrice;

// What a program has that a grid's price has not.
struct ProgramForm {
  Overlaps overlaps;
  bool chooses_scatters = true;  // how many may be pending, instead of as many as the training says
};

// A step on a grid, or on its stages by the schedule of the training, as a program that is planned
// on these devices. Pending scatters that are chosen have the memory that the price leaves.
// InvalidArgument: a schedule of which there are no programs; what MakeGridProgram finds.
absl::StatusOr<WindowedGrid> PlanProgramOfGrid(const StepModel& step, const GridShape& shape,
                                               const DescribedDevices& on, const ProgramForm& form);

// The same of layers with grids of their own.
absl::StatusOr<WindowedGrid> PlanProgramOfGrid(const StepModel& step, const LayerGridsPrice& price,
                                               const DescribedDevices& on, const ProgramForm& form);

// Of a grid, or of grids of layers, as a user names them, whether it fits or not. As that; what
// ParseLayerGrids, PriceGrid and PriceLayerGrids find.
absl::StatusOr<WindowedGrid> PlanProgramOfGrid(const GridRequest& request, absl::string_view grid,
                                               const DescribedDevices& on, const ProgramForm& form);

}  // namespace crossmesh
