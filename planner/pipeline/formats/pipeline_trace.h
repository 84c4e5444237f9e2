#pragma once

#include "planner/pipeline/op_table.h"
#include "planner/pipeline/timeline.h"

#include <nlohmann/json.hpp>

namespace crossmesh {

// A run in Chrome's trace event format (chrome://tracing, ui.perfetto.dev), in microseconds: a
// process of ranks, each a row with a slice for every op, "0F1", or for two fused ones, "0F1&
// 0B0"; and one of transfers between ranks, each a row with a slice for every transfer, named after
// the op whose output it is. Where nothing makes messages wait, those of one row may overlap. Cost:
// ops and messages.
nlohmann::ordered_json PipelineTrace(const OpTable& ops, const PipelineTimeline& run);

}  // namespace crossmesh
