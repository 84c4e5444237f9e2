#pragma once

#include "common/mesh/device.h"
#include "crossmesh/v1/pipeline_execution_service.pb.h"
#include "planner/pipeline/planning/planned_pipeline.h"

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// What one worker does in an iteration.
struct PlannedProgram {
  v1::PipelineProgram message;
  // Of each transfer of the message, its place in PlannedPipeline::transfers.
  std::vector<int32_t> transfers;
};

// The programs of workers that own these devices, in their order. Every device of every rank must
// be owned by exactly one of them: what CutParts finds otherwise. InvalidArgument names an edge
// that passes between ranks and has no tensors, only times: there is nothing to carry out. Cost:
// that of cutting every plan, and linear in ops and transfers for each worker of a rank.
absl::StatusOr<std::vector<PlannedProgram>> MakeWorkerPrograms(
    const PlannedPipeline& planned, const std::vector<std::vector<DeviceId>>& devices_of_worker);

}  // namespace crossmesh
