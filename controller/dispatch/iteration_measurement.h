#pragma once

#include "controller/dispatch/iteration_times.h"
#include "crossmesh/v1/pipeline_service.pb.h"

#include <vector>

namespace crossmesh {

struct PlannedLayers;
struct PlannedPipeline;

// What an iteration took, by rank and transfer, in seconds from the begin of the first op, as
// IterationTimes joins it; two ops that are fused are told as one. Cost: linear in the reports.
v1::PipelineMeasurement MeasureIteration(const PlannedPipeline& planned,
                                         const std::vector<WorkerReport>& reports);
v1::PipelineMeasurement MeasureIteration(const PlannedLayers& planned,
                                         const std::vector<WorkerReport>& reports);

}  // namespace crossmesh
