// PyTorch's schedule files: a row for each rank, a cell for each action.

#pragma once

#include "planner/pipeline/op_table.h"
#include "planner/pipeline/schedule.h"

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Which actions a file has. A file does not say so itself.
enum class CsvDialect : uint8_t {
  kComputeOnly,   // ops; empty cells are times in which a rank waits
  kComputeComms,  // every transfer and gradient reduction as well, and no empty cells
};

// Reads a file. Letters are those of PyTorch today: B is the whole backward op and I the gradient
// of the input; older files had B for either. Ops that overlap, "(0F7;3B3)OVERLAP_F_B", are fused.
// Stages are a chain, each on the rank in whose row it stands. Of transfers, only that they are
// there, between the ops that they join, is looked at: Crossmesh makes its own.
//
// InvalidArgument with row and column, both from 1, or with rank and ops, what was expected and
// what was found: another text or dialect, what ScheduleOfPlacedOps refuses, transfers other than
// those between ranks, a row without ops, ops that wait for themselves.
absl::StatusOr<Schedule> ParseScheduleCsv(absl::string_view text, CsvDialect dialect);

// The file of a schedule. With transfers, receives stand where PyTorch puts them, stages are
// unsharded from their first op to their last, and their gradients reduced after that.
// InvalidArgument unless the stages are a chain, which is what PyTorch takes them for; and as
// ProveOrder.
absl::StatusOr<std::string> ToScheduleCsv(const OpTable& ops, CsvDialect dialect);

}  // namespace crossmesh
