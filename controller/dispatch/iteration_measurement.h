#pragma once

#include "crossmesh/v1/pipeline_execution_service.pb.h"
#include "crossmesh/v1/pipeline_service.pb.h"

#include <cstdint>
#include <vector>

namespace crossmesh {

struct PlannedPipeline;

// What a worker says of a complete iteration.
struct WorkerReport {
  std::vector<int32_t> transfers;  // as in its PlannedProgram
  v1::RunProgramResponse::IterationReport report;
};

// From the begin of the first op to the end of the last one; 0: no op was reported. Hosts' clocks
// are taken to agree.
double IterationSeconds(const std::vector<WorkerReport>& reports);

// The middle one, or the mean of the two that are; 0 of none.
double Median(std::vector<double> values);

// Most ops and transfers whose times are told one by one: with more, clients' messages would grow
// too large.
inline constexpr int64_t kMeasuredTimesMax = 200'000;

// What an iteration took, by rank and transfer, in seconds from the begin of the first op. An op of
// several workers begins at the first and ends at the last of them; two that are fused are told as
// one. A message begins when the last sender has produced it, and ends when the last receiver has
// it. Cost: linear in the reports.
v1::PipelineMeasurement MeasureIteration(const PlannedPipeline& planned,
                                         const std::vector<WorkerReport>& reports);

}  // namespace crossmesh
