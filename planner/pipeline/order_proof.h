#pragma once

#include "planner/pipeline/op_table.h"

#include <absl/status/status.h>

namespace crossmesh {

// Proves that no op waits for itself: each waits for the one before it on its rank and for its
// inputs, and fused ops for what either waits for. InvalidArgument, with the circle, when
// one does. Cost: linear.
absl::Status ProveOrder(const OpTable& ops);

}  // namespace crossmesh
