// What was measured of a run, as the input of the next plan.

#pragma once

#include "crossmesh/v1/pipeline.pb.h"
#include "crossmesh/v1/pipeline_service.pb.h"

#include <absl/status/status.h>

namespace crossmesh {

// Gives every edge between two ranks the times that its transfers took, and, unless the run was a
// rehearsal, every stage those of its ops, and every pair its own, so that the next plan is made
// with them: the medians over microbatches of the first size in the last complete iteration. A
// backward op that was not split is split as before; in halves where it was expected to take no
// time. Ops that were computed in pairs alone keep their times, and no pair takes less than either
// of its ops. InvalidArgument names an edge that was not measured in a direction, or a stage of
// which a kind of op was not: the controller tells no ops of iterations with more than 200,000 of
// them and transfers.
absl::Status SetMeasuredTimes(const v1::PipelineRun& run, v1::PipelineSpec& spec);

}  // namespace crossmesh
