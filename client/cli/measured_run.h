#pragma once

#include "controller/pipeline/op_table.h"
#include "controller/pipeline/run.h"
#include "crossmesh/v1/pipeline_service.pb.h"

#include <absl/status/statusor.h>

namespace crossmesh {

// What was measured of an iteration, as a run of the table. InvalidArgument names what is not in
// the table, or is missing.
absl::StatusOr<PipelineRun> MeasuredRun(const OpTable& ops,
                                        const v1::PipelineMeasurement& measurement);

}  // namespace crossmesh
