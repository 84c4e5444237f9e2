// A made-up run of a pipeline, for tests.

#pragma once

#include "crossmesh/v1/pipeline_service.pb.h"
#include "planner/pipeline/planning/planned_pipeline.h"

#include <string>

namespace crossmesh {

// A rehearsal of 3 iterations, of which the first failed, as if everything had taken `slower` times
// as long as planned.
v1::PipelineRun ExampleRun(const PlannedPipeline& planned, double slower);

// The same of the example pipeline, by a schedule's name.
v1::PipelineRun ExampleRunOf(const std::string& schedule, double slower);

}  // namespace crossmesh
