#include "client/cli/program_of_grid.h"

#include "common/base/status_macros.h"
#include "planner/parallelism/programs/grid_program.h"
#include "planner/pipeline/schedules/window_order.h"

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::StatusOr<Schedule> ScheduleOf(const Training& training, const GridShape& shape) {
  const auto stages = static_cast<int32_t>(shape.grid.pipeline());
  const auto microbatches = static_cast<int32_t>(shape.microbatches);
  if (stages == 1) return Schedule();
  switch (training.schedule) {
    case GridSchedule::kGpipe:
      return MakeGpipe(stages, microbatches);
    case GridSchedule::kOneForwardOneBackward:
      return MakeOneForwardOneBackward(stages, microbatches);
    case GridSchedule::kEager:
      return MakeEagerOneForwardOneBackward(stages, microbatches);
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("--schedule: expected gpipe, 1f1b or eager_1f1b, found ",
                       GridScheduleName(training.schedule)));
  }
}

}  // namespace

absl::StatusOr<LayerProgram> ProgramOfGrid(const StepModel& step, const GridShape& shape,
                                           std::span<const DeviceId> devices,
                                           const Overlaps& overlaps) {
  GridProgramRequest request{.model = step.model(),
                             .training = step.training(),
                             .microbatches = static_cast<int32_t>(shape.microbatches),
                             .device = step.device()};
  request.training.overlaps = overlaps;
  ASSIGN_OR_RETURN(request.stages, StagesOfGrid(shape.grid, devices, step.model().layers));
  ASSIGN_OR_RETURN(request.schedule, ScheduleOf(step.training(), shape));
  return MakeGridProgram(request);
}

}  // namespace crossmesh
