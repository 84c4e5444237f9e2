#pragma once

#include "common/plan/tensor_table.h"
#include "planner/network/host_network.h"

#include <cstdint>
#include <span>
#include <vector>

namespace crossmesh {

// A whole slice going from a sender host down a chain of receiver hosts.
struct Broadcast {
  int64_t slice = 0;  // index of the slice that it moves
  HostRank sender = 0;
  std::vector<HostRank> chain;  // not empty
  int64_t bytes = 0;
};

// The end of the last broadcast, in seconds, under the published model, extended to shared hosts,
// several NICs and unequal rates: a broadcast takes bytes / (rate of the slowest port that it
// uses), and for that time has to itself the sender's out port, the in port of every host of the
// chain and the out port of all but the last; of several NICs it uses the fastest. It starts when
// all its ports are free, and each port keeps the order of the list.
//
// Source: arXiv 2211.05322, section 3 (as evaluated by its released solver). Cost: linear.
double BroadcastMakespan(std::span<const Broadcast> broadcasts, const HostNetwork& network);

}  // namespace crossmesh
