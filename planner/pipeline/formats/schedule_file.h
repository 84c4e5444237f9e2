// Crossmesh's own file of a schedule: JSON.
//
//   {
//     "version": 1,
//     "microbatches": 2,
//     "stage_ranks": [0, 1],
//     "edges": [{"from": 0, "to": 1}],
//     "ranks": ["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"]
//   }
//
// `stage_ranks` says which rank has each stage, `edges` between which stages something passes, and
// `ranks` in which order each rank does its ops, with one space between any two; 0F1 and 0B0 of
// "0F1& 0B0" are fused.

#pragma once

#include "planner/pipeline/formats/shape.h"
#include "planner/pipeline/op_table.h"
#include "planner/pipeline/schedule.h"

#include <string>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

struct ScheduleFile {
  PipelineShape shape;
  Schedule schedule;

  friend bool operator==(const ScheduleFile&, const ScheduleFile&) = default;
};

// InvalidArgument, with place (counted from 0), what was expected and what was found: other JSON or
// another version, counts or ranks of stages that are not those of the ops, and what
// ScheduleOfPlacedOps, Validate and ProveOrder refuse. Cost: ops, times their logarithm.
absl::StatusOr<ScheduleFile> ParseScheduleFile(absl::string_view text);

// InvalidArgument as ProveOrder.
absl::StatusOr<std::string> ToScheduleFile(const OpTable& ops);

}  // namespace crossmesh
