// What was measured of an iteration, as plans have it.

#pragma once

#include "crossmesh/v1/pipeline_service.pb.h"
#include "planner/pipeline/op_table.h"
#include "planner/pipeline/timeline.h"

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// What was measured of an iteration, by the numbers of the table. A message that was not measured
// is at the end of the op whose output it is. InvalidArgument names an op that the schedule does
// not have, or that was not measured, or an edge that is not there. Cost: ops, times their
// logarithm.
absl::StatusOr<PipelineTimeline> MeasuredTimeline(const v1::PipelineMeasurement& measurement,
                                                  const OpTable& ops);

}  // namespace crossmesh
