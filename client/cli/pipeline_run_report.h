#pragma once

#include "client/cli/listing.h"
#include "crossmesh/v1/pipeline_service.pb.h"

#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace crossmesh {

// How many iterations of a run were tried.
int64_t IterationsTried(const v1::PipelineRun& run);

// By rank: seconds in which any op was computed. Where a rank has several workers, and one is ahead
// of another, ops of both overlap.
std::map<int, double> MeasuredBusy(const v1::PipelineMeasurement& measurement);

// What became of a run, for people: its state, its iterations and why the last ones failed, what
// was predicted and what was measured, of the whole, of each rank, and of each edge in each
// direction. What has not been measured is "-".
std::string PipelineRunText(const v1::PipelineRun& run);

// A row for each run.
Listing PipelineRunListing(const Cli& cli, std::span<const v1::PipelineRun> runs);

}  // namespace crossmesh
