#pragma once

#include "common/plan/tensor_table.h"
#include "planner/network/host_network.h"
#include "planner/network/routing.h"

#include <cstdint>
#include <string>
#include <vector>

namespace crossmesh {

// Bytes that routes put through each port. Hops inside a host pass no port.
struct PortLoad {
  PortLoad() = default;
  explicit PortLoad(const HostNetwork& network);
  // What goes from one host to another.
  void Add(const HostNetwork& network, HostRank from, HostRank to, int64_t bytes);

  std::vector<int64_t> host_out;  // by HostRank
  std::vector<int64_t> host_in;
  std::vector<int64_t> rack_up;  // by rack; empty without racks
  std::vector<int64_t> rack_down;
  int64_t network_bytes = 0;   // sum of host_out
  int32_t depth = 0;           // hops between hosts on the deepest route
  double latency_seconds = 0;  // on the way along the route that has most of it
};

// Cost: linear in hops.
PortLoad ComputePortLoad(const TensorTable& tensors, const HostNetwork& network,
                         const Routes& routes);

// The port that is busy longest if every port works at its full rate. No execution of the routes is
// faster.
struct BusiestPort {
  double seconds = 0;
  int64_t bytes = 0;
};
BusiestPort FindBusiestPort(const PortLoad& load, const HostNetwork& network);

// The host that most goes through, in one direction; none where nothing leaves a host.
struct BusiestHost {
  std::string name;
  int64_t bytes = 0;
};
BusiestHost FindBusiestHost(const PortLoad& load, const HostNetwork& network);

// What the depth of the routes costs at the end of an execution: (D - 1) / K of the time of the
// busiest port, with D = depth and K = the chunks that pass that port, at least 1; and latencies.
// Every port works in periods of one of those chunks; the last byte comes D - 1 periods after the
// first hop, and is on its way for the latencies besides.
double FillSeconds(const PortLoad& load, const BusiestPort& busiest, int64_t chunk_bytes);

}  // namespace crossmesh
