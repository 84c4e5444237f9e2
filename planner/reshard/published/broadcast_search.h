#pragma once

#include "common/base/cancel_check.h"
#include "planner/network/host_network.h"
#include "planner/reshard/published/broadcast_greedy.h"
#include "planner/reshard/published/broadcast_makespan.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// The most orders that a search looks at.
inline constexpr int64_t kSearchNodesMax = 1'000'000;

struct BroadcastSearchOptions {
  int64_t nodes_max = kSearchNodesMax;
  CancelCheck cancelled = NeverCancelled;
};

struct SearchedOrder {
  std::vector<Broadcast> order;
  double seconds = 0;  // its makespan
  int64_t nodes = 0;   // orders looked at, nearly all of them beginnings
  bool complete = false;

  // "complete: 1234 orders looked at".
  std::string ToString() const;
};

// The published ordering by depth-first search with pruning: from a beginning of an order, goes on
// with every broadcast that is left from every candidate, and turns back where what it has cannot
// end before the best order that it knows, which is `incumbent` (not empty unless `open` is) at
// first. A complete search returns an order of least BroadcastMakespan, to a billionth; any other
// the best one found, never worse than the incumbent.
//
// Unlike the published search, which at its time limit or even without one may miss the optimum:
// - it ends by the number of orders that it looks at, not by the clock, so it is reproducible;
// - it turns back by BroadcastPortTimes::LowerBound, which is one: the published estimate commits
//   senders greedily and may cut off the best order (six slices of 3, 27, 19, 12, 23 and 30 bytes
//   that two hosts hold and six others need: 60 instead of 57);
// - a slice weighs its own bytes, not those of its source tile;
// - alike broadcasts, and senders that are alike at that moment, are tried once; and of the orders
//   with one and the same timetable only the one sorted by start, without gaps that a whole
//   broadcast would fit in (Giffler and Thompson, 1960).
//
// Cancelled when `cancelled` says so, which is asked before it goes on with an order. Cost: orders
// looked at (which exceed the limit by what may follow one beginning) times hosts, and 40 bytes for
// each of them at most; no recursion.
// Source: arXiv 2211.05322, section 3, and its released solver.
absl::StatusOr<SearchedOrder> SearchOrder(std::span<const OpenBroadcast> open,
                                          std::vector<Broadcast> incumbent,
                                          const HostNetwork& network,
                                          const BroadcastSearchOptions& options = {});

}  // namespace crossmesh
