#pragma once

#include "common/mesh/topology.h"
#include "common/plan/plan.h"
#include "planner/network/host_network.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace crossmesh {

// One direction of a NIC, or of a rack's uplink.
struct NetworkPort {
  PortPrice::Port kind = PortPrice::Port::kHostOut;
  std::string name;  // "host/nic", or the rack's
  double bytes_per_second = 0;
  double latency_seconds = 0;
};

// A network, port by port, where HostNetwork has sums over the NICs of a host. Immutable.
class NicPorts {
 public:
  NicPorts(const HostNetwork& network, const Topology& topology);

  const std::vector<NetworkPort>& ports() const { return ports_; }
  HostRank hosts() const { return static_cast<HostRank>(out_.size()); }
  // Numbers of a host's ports, one for each NIC.
  std::span<const int32_t> out(HostRank host) const { return out_[host]; }
  std::span<const int32_t> in(HostRank host) const { return in_[host]; }
  // What the two ports add to the time that a byte is on its way.
  double LatencySeconds(int32_t out_port, int32_t in_port) const {
    return ports_[out_port].latency_seconds + ports_[in_port].latency_seconds;
  }
  // What is passed between `from` and `to`: the two ports, and those of their racks in between.
  std::vector<int32_t> Path(HostRank from, int32_t out_port, HostRank to, int32_t in_port) const;

 private:
  int32_t Add(PortPrice::Port kind, std::string name, int64_t bytes_per_second,
              int64_t latency_ns = 0);

  std::vector<NetworkPort> ports_;
  std::vector<std::vector<int32_t>> out_;  // by host
  std::vector<std::vector<int32_t>> in_;
  std::vector<int32_t> rack_of_host_;  // empty without racks
  std::vector<int32_t> up_;            // by rack; negative: unlimited
  std::vector<int32_t> down_;
};

}  // namespace crossmesh
