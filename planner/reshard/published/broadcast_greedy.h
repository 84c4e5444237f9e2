#pragma once

#include "common/base/cancel_check.h"
#include "common/plan/tensor_table.h"
#include "planner/reshard/published/broadcast_makespan.h"

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// A broadcast whose sender is still to be chosen.
struct OpenBroadcast {
  Broadcast broadcast;
  std::vector<HostRank> candidates;  // holder hosts
};

// The most slices that the greedy order looks at.
inline constexpr int64_t kGreedyDrawsMax = int64_t{1} << 28;

// The published randomised greedy: until nothing is left, draw 100 maximal sets of broadcasts that
// share no port, keep the one with most members, then with the smallest standard deviation of bytes
// over all sender hosts, and append it to the order. A set takes the broadcasts in random order; a
// free sender is drawn with a weight of (greatest load - its load + 1). We draw from `seed`, and
// stop a set once no sender or no receiver is free.
//
// ResourceExhausted when more than kGreedyDrawsMax broadcasts would be looked at: the published
// method is quadratic in them. Cancelled when `cancelled` says so, which is asked before each set.
// Source: arXiv 2211.05322, section 3, and its released solver.
absl::StatusOr<std::vector<Broadcast>> OrderGreedily(std::vector<OpenBroadcast> broadcasts,
                                                     int64_t hosts, uint64_t seed,
                                                     CancelCheck cancelled = NeverCancelled);

}  // namespace crossmesh
