#pragma once

#include "planner/pipeline/op_table.h"

#include <utility>
#include <vector>

namespace crossmesh {

// Which ranks wait for which op; a rank waits for one at most. Thread-compatible.
class WaitingRanks {
 public:
  WaitingRanks(int32_t ops, RankIndex ranks) : first_(ops, kNone), next_(ranks, kNone) {}

  void Add(RankIndex rank, OpIndex op) { next_[rank] = std::exchange(first_[op], rank); }
  // Calls visit(rank) for each that waits for the op, and forgets them.
  template <typename Visit>
  void Release(OpIndex op, Visit visit) {
    RankIndex rank = std::exchange(first_[op], kNone);
    while (rank != kNone) {
      const RankIndex next = std::exchange(next_[rank], kNone);
      visit(rank);
      rank = next;
    }
  }

 private:
  static constexpr RankIndex kNone = -1;

  std::vector<RankIndex> first_;  // by op
  std::vector<RankIndex> next_;   // by rank
};

}  // namespace crossmesh
