#include "client/cli/program_of_grid.h"

#include "common/base/status_macros.h"
#include "planner/parallelism/grid_ranking.h"
#include "planner/parallelism/programs/grid_program.h"
#include "planner/parallelism/programs/layer_grids_price.h"
#include "planner/pipeline/schedules/interleaved.h"
#include "planner/pipeline/schedules/window_order.h"
#include "planner/pipeline/schedules/zero_bubble.h"

#include <memory>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::StatusOr<Schedule> ScheduleOf(const Training& training, const GridShape& shape) {
  const auto stages = static_cast<int32_t>(shape.grid.pipeline());  // or ranks, of several each
  const auto microbatches = static_cast<int32_t>(shape.microbatches);
  if (stages == 1) return Schedule();
  switch (training.schedule) {
    case GridSchedule::kGpipe:
      return MakeGpipe(stages, microbatches);
    case GridSchedule::kOneForwardOneBackward:
      return MakeOneForwardOneBackward(stages, microbatches);
    case GridSchedule::kEager:
      return MakeEagerOneForwardOneBackward(stages, microbatches);
    case GridSchedule::kZbH1:
      return MakeZeroBubbleH1(stages, microbatches);
    case GridSchedule::kInterleaved:
      return MakeInterleaved({.ranks = stages,
                              .chunks = static_cast<int32_t>(training.chunks),
                              .microbatches = microbatches});
  }
  return absl::InternalError("a schedule of none of the kinds");
}

// Of the training, with these overlaps; without stages.
GridProgramRequest RequestOf(const StepModel& step, int64_t microbatches, const ProgramForm& form) {
  GridProgramRequest request{.model = step.model(),
                             .training = step.training(),
                             .microbatches = static_cast<int32_t>(microbatches),
                             .device = step.device()};
  request.training.overlaps = form.overlaps;
  return request;
}

absl::StatusOr<WindowedGrid> PlanRequest(GridProgramRequest request, const Topology& topology,
                                         const ProgramForm& form, double scatter_bytes_max) {
  if (!form.chooses_scatters) return PlanWithGivenScatters(request, topology);
  return PlanWithScatterWindow(std::move(request), topology, scatter_bytes_max);
}

}  // namespace

absl::StatusOr<WindowedGrid> PlanProgramOfGrid(const StepModel& step, const GridShape& shape,
                                               const DescribedDevices& on,
                                               const ProgramForm& form) {
  GridProgramRequest request = RequestOf(step, shape.microbatches, form);
  // Without a pipeline there are no chunks.
  const int64_t of_rank = shape.grid.pipeline() > 1 ? step.training().chunks : 1;
  ASSIGN_OR_RETURN(
      request.stages,
      StagesOfGrid(shape.grid, on.devices, {.layers = step.model().layers, .of_rank = of_rank}));
  ASSIGN_OR_RETURN(request.schedule, ScheduleOf(step.training(), shape));
  const MemoryTerms memory = step.Memory(shape);
  const auto most = static_cast<double>(step.device().memory_bytes);
  return PlanRequest(std::move(request), on.topology, form,
                     most - (memory.total() - memory.pending_scatters));
}

absl::StatusOr<WindowedGrid> PlanProgramOfGrid(const StepModel& step, const LayerGridsPrice& price,
                                               const DescribedDevices& on,
                                               const ProgramForm& form) {
  GridProgramRequest request = RequestOf(step, price.shapes.front().microbatches, form);
  ASSIGN_OR_RETURN(Mesh mesh, MeshOfGrids(price.parts.grids, on.devices));
  request.stages.push_back({.grid = price.grids.grid,
                            .mesh = std::make_shared<const Mesh>(std::move(mesh)),
                            .layers = step.model().layers,
                            .others = price.grids.others});
  const auto most = static_cast<double>(step.device().memory_bytes);
  return PlanRequest(std::move(request), on.topology, form,
                     most - (price.memory_bytes() - price.memory.pending_scatters));
}

absl::StatusOr<WindowedGrid> PlanProgramOfGrid(const GridRequest& request, absl::string_view grid,
                                               const DescribedDevices& on,
                                               const ProgramForm& form) {
  if (NamesLayerGrids(grid)) {
    ASSIGN_OR_RETURN(const LayerGrids grids, ParseLayerGrids(grid));
    ASSIGN_OR_RETURN(const LayerGridsPrice price, PriceLayerGrids(request.step, grids, true));
    return PlanProgramOfGrid(request.step, price, on, form);
  }
  ASSIGN_OR_RETURN(const Grid one, ParseGrid(grid));
  ASSIGN_OR_RETURN(const RankedGrid priced, PriceGrid(request.step, one, request.limits, true));
  return PlanProgramOfGrid(request.step, priced.shape, on, form);
}

}  // namespace crossmesh
