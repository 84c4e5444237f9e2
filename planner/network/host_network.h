#pragma once

#include "common/mesh/topology.h"
#include "common/plan/tensor_table.h"

#include <cstdint>
#include <string>
#include <vector>

namespace crossmesh {

// Port rates in bytes per second, by place: a host, or a rack one level up.
struct PortRates {
  // Instead of a rate: a port that never limits anything.
  static constexpr int64_t kUnlimited = 0;
  // Greater rates count as this one (70 TB/s), which keeps exact arithmetic within 128 bits.
  static constexpr int64_t kMax = int64_t{1} << 46;

  std::vector<int64_t> out;
  std::vector<int64_t> in;
};

// The described network as seen by the hosts of a table. Immutable value.
struct HostNetwork {
  std::vector<std::string> hosts;  // names, by HostRank
  PortRates host_rates;            // sums over the host's NICs
  PortRates fastest_nic;           // of the one NIC per direction that is fastest
  bool assumed_rates = false;      // some host is not described

  // The most that a NIC of a host adds to the time that a byte is on its way, by HostRank; empty
  // where none adds anything.
  std::vector<double> out_latency_seconds;
  std::vector<double> in_latency_seconds;

  // Racks by number. A host in no rack is a rack of its own, without a name and unlimited, so that
  // its traffic counts at the other end only. Without described racks all of this is empty.
  std::vector<std::string> racks;
  std::vector<int32_t> rack_of_host;
  PortRates rack_rates;

  bool has_latencies() const { return !out_latency_seconds.empty(); }
  double LatencySeconds(HostRank from, HostRank to) const {
    return has_latencies() ? out_latency_seconds[from] + in_latency_seconds[to] : 0;
  }
  bool has_racks() const { return !racks.empty(); }
  // Whether bytes between these hosts pass the uplinks of two racks.
  bool CrossesRacks(HostRank a, HostRank b) const {
    return has_racks() && rack_of_host[a] != rack_of_host[b];
  }
};

// Cost: linear in the hosts.
HostNetwork HostNetworkOf(const TensorTable& tensors, const Topology& topology);

}  // namespace crossmesh
