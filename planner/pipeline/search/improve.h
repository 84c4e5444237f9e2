#pragma once

#include "planner/pipeline/profile.h"
#include "planner/pipeline/schedule.h"
#include "planner/pipeline/search/schedule_judge.h"

#include <cstdint>

#include <absl/status/statusor.h>

namespace crossmesh {

struct ImprovedSchedule {
  Schedule schedule;
  double seconds = 0;  // of the objective
  int64_t ops = 0;     // that were run to find it
};

struct ImproveOptions {
  ScheduleJudge judge;
  SearchObjective objective = SearchObjective::kSeconds;
  int64_t ops_max = 0;
};

// Moves ops that the time of a schedule depends on, one by one, to another place in their rank's
// order, as long as that saves time, or lets ops begin sooner in the same time, and the judge
// admits it; until no such move helps, or one more run would simulate more than `ops_max` ops. The
// schedule itself is run in any case; it must be complete and must run: InvalidArgument as
// OpTable::Create, and what the judge finds. Deterministic.
absl::StatusOr<ImprovedSchedule> ImproveSchedule(const Schedule& schedule,
                                                 const PipelineProfile& profile,
                                                 const ImproveOptions& options);

}  // namespace crossmesh
