#pragma once

#include "planner/pipeline/formats/csv_action.h"
#include "planner/pipeline/formats/placed_ops.h"
#include "planner/pipeline/op_table.h"

#include <vector>

#include <absl/status/status.h>

namespace crossmesh {

// Checks what the rows of a file have beside the ops of a chain of stages. InvalidArgument, with
// place, what was expected and what was found, unless each transfer between ranks is sent once,
// after the op whose output it is, and received once, before the op that needs it; nothing else is
// sent or received; and stages that are sharded, or whose gradients are reduced, are of the rank,
// and reduced once at most.
absl::Status CheckCsvTransfers(const OpTable& ops, const std::vector<std::vector<CsvAction>>& rows,
                               PlaceName place);

}  // namespace crossmesh
