#pragma once

#include "crossmesh/v1/pipeline_service.pb.h"

#include <string>
#include <vector>

namespace crossmesh {

// A run for people: its state, the time of an iteration as predicted and as measured, what failed,
// then a row for each rank and for each edge in each direction.
std::string PipelineRunText(const v1::PipelineRun& run);

// A row for each run.
std::string PipelineRunTable(const std::vector<v1::PipelineRun>& runs);

}  // namespace crossmesh
