#include "planner/network/host_network.h"

#include <algorithm>
#include <optional>

#include <absl/container/flat_hash_map.h>
#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

void AddPort(PortRates& rates, int64_t out, int64_t in) {
  rates.out.push_back(std::min(out, PortRates::kMax));
  rates.in.push_back(std::min(in, PortRates::kMax));
}

void AddFastestNic(const Topology& topology, absl::string_view host, PortRates& rates) {
  const Host* described = topology.FindHost(host);
  if (described == nullptr) {
    return AddPort(rates, topology.assumed_bytes_per_second(), topology.assumed_bytes_per_second());
  }
  int64_t out = 0, in = 0;
  for (const Nic& nic : described->nics) {
    out = std::max(out, nic.out_bytes_per_second);
    in = std::max(in, nic.in_bytes_per_second);
  }
  AddPort(rates, out, in);
}

void AddLatencies(const Topology& topology, HostNetwork& network) {
  bool any = false;
  for (const std::string& host : network.hosts) {
    int64_t out_ns = 0, in_ns = 0;
    if (const Host* const described = topology.FindHost(host)) {
      for (const Nic& nic : described->nics) {
        out_ns = std::max(out_ns, nic.out_latency_ns);
        in_ns = std::max(in_ns, nic.in_latency_ns);
      }
    }
    network.out_latency_seconds.push_back(static_cast<double>(out_ns) * 1e-9);
    network.in_latency_seconds.push_back(static_cast<double>(in_ns) * 1e-9);
    any |= out_ns + in_ns > 0;
  }
  // Empty vectors say "no latencies" to the planner, which then skips their arithmetic.
  if (any) return;
  network.out_latency_seconds.clear();
  network.in_latency_seconds.clear();
}

// Numbers the racks in the order in which the hosts meet them.
void AddRacks(const Topology& topology, HostNetwork& network) {
  absl::flat_hash_map<int, int32_t> number_of_rack;
  for (const std::string& host : network.hosts) {
    const std::optional<int> rack = topology.RackOf(host);
    const int32_t next = static_cast<int32_t>(network.racks.size());
    if (rack.has_value()) {
      const auto [entry, is_new] = number_of_rack.try_emplace(*rack, next);
      network.rack_of_host.push_back(entry->second);
      if (!is_new) continue;
      const Rack& described = topology.racks()[*rack];
      network.racks.push_back(described.name);
      AddPort(network.rack_rates, described.up_bytes_per_second, described.down_bytes_per_second);
    } else {
      // A rack of its own without a limit: traffic of this host counts at the other end only.
      network.rack_of_host.push_back(next);
      network.racks.emplace_back();
      AddPort(network.rack_rates, PortRates::kUnlimited, PortRates::kUnlimited);
    }
  }
}

}  // namespace

HostNetwork HostNetworkOf(const TensorTable& tensors, const Topology& topology) {
  HostNetwork network;
  network.hosts = tensors.hosts();
  for (const std::string& host : network.hosts) {
    AddPort(network.host_rates, topology.RateOut(host), topology.RateIn(host));
    AddFastestNic(topology, host, network.fastest_nic);
    network.assumed_rates |= topology.FindHost(host) == nullptr;
  }
  AddLatencies(topology, network);
  if (!topology.racks().empty()) AddRacks(topology, network);
  return network;
}

}  // namespace crossmesh
