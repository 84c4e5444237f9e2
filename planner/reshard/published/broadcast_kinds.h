#pragma once

#include "common/plan/tensor_table.h"
#include "planner/network/host_network.h"
#include "planner/reshard/published/broadcast_greedy.h"

#include <cstdint>
#include <span>
#include <vector>

namespace crossmesh {

// A holder host that may send the broadcasts of a kind, and how long one of them takes from there.
struct KindSender {
  HostRank host = 0;
  double seconds = 0;
  // Hosts of one number are interchangeable: same rate, senders of the same kinds, and in no chain.
  int32_t equals = 0;
};

// Broadcasts which no order can tell apart: same bytes, same chain, same candidates.
struct BroadcastKind {
  std::vector<int64_t> members;  // indices into the open broadcasts, ascending
  std::vector<HostRank> chain;
  std::vector<KindSender> senders;  // by host

  // From the sender that is fastest with them.
  double seconds() const;
};

// In the order of their first members. Cost: the broadcasts with their chains and candidates, times
// a logarithm.
std::vector<BroadcastKind> GroupByKind(std::span<const OpenBroadcast> open,
                                       const HostNetwork& network);

}  // namespace crossmesh
