#pragma once

#include "planner/parallelism/pipeline_law.h"

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// What a schedule of planner/pipeline really takes and holds over equal stages, by simulation.
struct ScheduleRun {
  double seconds = 0;
  double in_flight = 0;  // microbatches of the fullest rank, in those of all its chunks
};

// The schedule by its name, which need not be the shape's: schedules with two stages to a rank
// count as chunks of it. InvalidArgument as MakeNamedSchedule. Cost: the ops of the schedule.
absl::StatusOr<ScheduleRun> RunSchedule(absl::string_view schedule, const EqualPipeline& shape);

}  // namespace crossmesh
