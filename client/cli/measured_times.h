#pragma once

#include "crossmesh/v1/pipeline_service.pb.h"

#include <absl/status/status.h>

namespace crossmesh {

// Gives every edge between two ranks the times that its transfers took with microbatches of the
// first size, so that the next plan is made with them. InvalidArgument names an edge that was not
// measured in a direction.
absl::Status SetMeasuredTimes(const v1::PipelineMeasurement& measurement, v1::PipelineSpec& spec);

}  // namespace crossmesh
