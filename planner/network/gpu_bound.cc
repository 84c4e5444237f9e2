#include "planner/network/gpu_bound.h"

#include "planner/network/bound.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace crossmesh {
namespace {

// Which hosts are in a list of devices, ascending.
std::vector<int32_t> HostsOf(std::span<const int32_t> devices, const GpuNetwork& network) {
  std::vector<int32_t> hosts;
  for (const int32_t device : devices) {
    // Devices are sorted by host.
    if (hosts.empty() || hosts.back() != network.host_of[device]) {
      hosts.push_back(network.host_of[device]);
    }
  }
  return hosts;
}

// What can come to a host by one GPU alone. All other devices of the demand count as holders, which
// can only make it faster.
Demands DemandsOfSoleReceivers(const Demands& demands, const GpuNetwork& network) {
  Demands result;
  for (const Demand& demand : demands.demands) {
    const std::span<const int32_t> holders = demands.holders(demand);
    const std::span<const int32_t> receivers = demands.receivers(demand);
    const std::vector<int32_t> holder_hosts = HostsOf(holders, network);
    std::vector<int32_t> sole, others(holders.begin(), holders.end());
    for (size_t i = 0; i < receivers.size(); ++i) {
      const HostRank host = network.host_of[receivers[i]];
      const bool has_neighbour =
          (i > 0 && network.host_of[receivers[i - 1]] == host) ||
          (i + 1 < receivers.size() && network.host_of[receivers[i + 1]] == host);
      const bool is_sole = !has_neighbour && !std::ranges::binary_search(holder_hosts, host);
      (is_sole ? sole : others).push_back(receivers[i]);
    }
    if (sole.empty()) continue;
    std::ranges::sort(others);
    const int32_t holder_set = result.sets.Intern(others);
    result.demands.push_back(
        {.holders = holder_set, .receivers = result.sets.Intern(sole), .bytes = demand.bytes});
  }
  return result;
}

// Links and NICs of each GPU as one port.
HostNetwork AllPortsOf(const GpuNetwork& network) {
  HostNetwork all = network.links;
  if (network.hosts.hosts.size() == 1) return all;
  for (size_t d = 0; d < all.hosts.size(); ++d) {
    all.host_rates.out[d] += network.nics.host_rates.out[d];
    all.host_rates.in[d] += network.nics.host_rates.in[d];
  }
  return all;
}

// Of places that are GPUs.
Bound ToGpuBound(const ExactBound& exact, const HostNetwork& network) {
  Bound bound = ToBound(exact, network);
  for (PortPrice& price : bound.proof) {
    if (price.port == PortPrice::Port::kHostOut) price.port = PortPrice::Port::kGpuOut;
    if (price.port == PortPrice::Port::kHostIn) price.port = PortPrice::Port::kGpuIn;
  }
  return bound;
}

}  // namespace

Demands DemandsBetweenHosts(const Demands& demands, const GpuNetwork& network) {
  Demands result;
  for (const Demand& demand : demands.demands) {
    const std::vector<int32_t> holders = HostsOf(demands.holders(demand), network);
    std::vector<int32_t> receivers = HostsOf(demands.receivers(demand), network);
    std::erase_if(receivers,
                  [&](int32_t host) { return std::ranges::binary_search(holders, host); });
    if (receivers.empty()) continue;
    const int32_t holder_set = result.sets.Intern(holders);
    result.demands.push_back(
        {.holders = holder_set, .receivers = result.sets.Intern(receivers), .bytes = demand.bytes});
  }
  return result;
}

Bound BoundOfGpus(const Demands& demands, const GpuNetwork& network) {
  const HostNetwork all = AllPortsOf(network);
  std::vector<Bound> bounds = {ToGpuBound(ComputeBound(demands, all), all)};
  if (const Demands hosts = DemandsBetweenHosts(demands, network); !hosts.demands.empty()) {
    bounds.push_back(ToBound(ComputeBound(hosts, network.hosts), network.hosts));
    if (!network.shares_nics) {
      const Demands sole = DemandsOfSoleReceivers(demands, network);
      bounds.push_back(ToGpuBound(ComputeBound(sole, network.nics), network.nics));
    }
  }
  return std::move(*std::ranges::max_element(bounds, {}, &Bound::seconds));
}

}  // namespace crossmesh
