#pragma once

#include "crossmesh/v1/pipeline.pb.h"
#include "planner/pipeline/planning/planned_pipeline.h"

#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

namespace crossmesh {

using PlannedPointer = std::shared_ptr<const PlannedPipeline>;

// A schedule by name, with a search that is short.
v1::PipelineChoice ChoiceOf(const std::string& schedule, const std::string& model = "");

absl::StatusOr<PlannedPointer> PlanOf(const v1::PipelineSpec& spec,
                                      const v1::PipelineChoice& choice);

// A chain of equal stages on ranks of their own, of two hosts each, that pass one tensor on.
v1::PipelineSpec Chain(int stages, int microbatches, int64_t samples = 4);

// Four such stages down two ranks and up again. Where `pair_seconds` is above 0, so long take pairs
// of the two stages of a rank.
v1::PipelineSpec DownAndUp(int microbatches, double pair_seconds = 0);

}  // namespace crossmesh
