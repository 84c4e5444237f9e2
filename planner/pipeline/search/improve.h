#pragma once

#include "planner/pipeline/schedule.h"
#include "planner/pipeline/timeline.h"

#include <cstdint>

#include <absl/status/statusor.h>

namespace crossmesh {

struct ImprovedSchedule {
  Schedule schedule;
  double seconds = 0;
  int64_t ops = 0;  // that were run to find it
};

// Moves ops that the time of a schedule depends on, one by one, to another place in their rank's
// order, as long as that saves time, or lets ops begin sooner in the same time, and every rank's
// memory suffices; until no such move helps, or `ops_max` ops have been simulated.
// Deterministic. The schedule must be complete and must run: InvalidArgument as OpTable::Create and
// SimulatePipeline.
absl::StatusOr<ImprovedSchedule> ImproveSchedule(const Schedule& schedule,
                                                 const PipelineProfile& profile,
                                                 TransferModel model, int64_t ops_max);

}  // namespace crossmesh
