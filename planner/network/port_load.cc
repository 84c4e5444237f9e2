#include "planner/network/port_load.h"

#include <algorithm>
#include <span>

namespace crossmesh {
namespace {

void Consider(std::span<const int64_t> bytes, std::span<const int64_t> rates,
              BusiestPort& busiest) {
  for (size_t port = 0; port < bytes.size(); ++port) {
    if (rates[port] == PortRates::kUnlimited) continue;
    const double seconds = static_cast<double>(bytes[port]) / static_cast<double>(rates[port]);
    if (seconds > busiest.seconds) busiest = {.seconds = seconds, .bytes = bytes[port]};
  }
}

}  // namespace

PortLoad::PortLoad(const HostNetwork& network)
    : host_out(network.hosts.size()),
      host_in(network.hosts.size()),
      rack_up(network.racks.size()),
      rack_down(network.racks.size()) {}

void PortLoad::Add(const HostNetwork& network, HostRank from, HostRank to, int64_t bytes) {
  host_out[from] += bytes;
  host_in[to] += bytes;
  network_bytes += bytes;
  if (!network.CrossesRacks(from, to)) return;
  rack_up[network.rack_of_host[from]] += bytes;
  rack_down[network.rack_of_host[to]] += bytes;
}

PortLoad ComputePortLoad(const TensorTable& tensors, const HostNetwork& network,
                         const Routes& routes) {
  PortLoad load(network);
  std::vector<int32_t> depth(tensors.devices().size());  // of the present relay's devices
  std::vector<double> latency(network.has_latencies() ? tensors.devices().size() : 0);
  for (const Relay& relay : routes.relays) {
    const int64_t bytes = relay.end - relay.begin;
    depth[relay.root] = 0;
    if (network.has_latencies()) latency[relay.root] = 0;
    for (const Hop& hop : routes.HopsOf(relay)) {
      const HostRank from = tensors.host_of(hop.from), to = tensors.host_of(hop.to);
      depth[hop.to] = depth[hop.from];
      if (network.has_latencies()) latency[hop.to] = latency[hop.from];
      // Inside a host bytes pass no port and take no time.
      if (from == to) continue;
      if (network.has_latencies()) {
        latency[hop.to] += network.LatencySeconds(from, to);
        load.latency_seconds = std::max(load.latency_seconds, latency[hop.to]);
      }
      load.depth = std::max(load.depth, ++depth[hop.to]);
      load.Add(network, from, to, bytes);
    }
  }
  return load;
}

BusiestPort FindBusiestPort(const PortLoad& load, const HostNetwork& network) {
  BusiestPort busiest;
  Consider(load.host_out, network.host_rates.out, busiest);
  Consider(load.host_in, network.host_rates.in, busiest);
  Consider(load.rack_up, network.rack_rates.out, busiest);
  Consider(load.rack_down, network.rack_rates.in, busiest);
  return busiest;
}

BusiestHost FindBusiestHost(const PortLoad& load, const HostNetwork& network) {
  BusiestHost busiest;
  for (size_t host = 0; host < network.hosts.size(); ++host) {
    const int64_t bytes = std::max(load.host_out[host], load.host_in[host]);
    if (bytes > busiest.bytes) busiest = {.name = network.hosts[host], .bytes = bytes};
  }
  return busiest;
}

double FillSeconds(const PortLoad& load, const BusiestPort& busiest, int64_t chunk_bytes) {
  const double chunks =
      std::max(1.0, static_cast<double>(busiest.bytes) / static_cast<double>(chunk_bytes));
  return busiest.seconds * std::max(0, load.depth - 1) / chunks + load.latency_seconds;
}

}  // namespace crossmesh
