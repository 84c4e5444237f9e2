#pragma once

#include "crossmesh/v1/pipeline.pb.h"

#include <string>

namespace crossmesh {

// What a schedule comes to, for people: figures of the whole, then a row for each rank and for each
// edge in each direction.
std::string PipelinePlanText(const v1::PipelinePlan& plan);

// Beyond it: the ops of every rank, and what the search has looked at.
std::string PipelineExplanation(const v1::PipelinePlan& plan);

// A row for each schedule that was looked at, and what the busiest port carries in an iteration,
// the same for all; a schedule that is impossible has its reason.
std::string ComparisonTable(const v1::PipelinePlan& compared);

}  // namespace crossmesh
