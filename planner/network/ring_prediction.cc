#include "planner/network/ring_prediction.h"

#include "planner/network/gpu_costs.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <vector>

namespace crossmesh {
namespace {

int64_t LeastRate(const PortRates& rates) {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const auto* const ports : {&rates.out, &rates.in}) {
    for (const int64_t rate : *ports) {
      if (rate != PortRates::kUnlimited) least = std::min(least, rate);
    }
  }
  return least;
}

void Limit(int64_t rate, int64_t& least) {
  if (rate != PortRates::kUnlimited) least = std::min(least, rate);
}

// A group's devices by their hosts.
using HostMembers = std::map<HostRank, std::vector<DeviceRank>>;

HostMembers MembersByHost(const GpuNetwork& network, const std::vector<DeviceRank>& group) {
  HostMembers members;
  for (const DeviceRank device : group) members[network.host_of[device]].push_back(device);
  return members;
}

// What the NICs of these devices give together.
int64_t SumOf(const std::vector<int64_t>& rates, const std::vector<DeviceRank>& devices) {
  int64_t sum = 0;
  for (const DeviceRank device : devices) {
    if (rates[device] == PortRates::kUnlimited) return PortRates::kUnlimited;
    sum += rates[device];
  }
  return sum;
}

// What each of the rings that pass a rack's uplink has of it.
void LimitByRacks(const HostNetwork& hosts, const std::vector<HostMembers>& groups, int64_t& rate) {
  if (!hosts.has_racks()) return;
  std::vector<int64_t> rings(hosts.racks.size(), 0);
  for (const HostMembers& members : groups) {
    std::set<int32_t> racks;
    for (const auto& [host, devices] : members) racks.insert(hosts.rack_of_host[host]);
    if (racks.size() < 2) continue;
    for (const int32_t rack : racks) ++rings[rack];
  }
  for (size_t rack = 0; rack < rings.size(); ++rack) {
    if (rings[rack] == 0) continue;
    for (const int64_t uplink : {hosts.rack_rates.out[rack], hosts.rack_rates.in[rack]}) {
      if (uplink != PortRates::kUnlimited) rate = std::min(rate, uplink / rings[rack]);
    }
  }
}

int64_t RingRate(const GpuNetwork& network, const GroupedCollective& collective) {
  int64_t rate = gpu_costs::kChannels * network.costs.channel_bytes_per_second.value;
  std::vector<HostMembers> groups;
  for (const std::vector<DeviceRank>& group : collective.groups) {
    const HostMembers& members = groups.emplace_back(MembersByHost(network, group));
    for (const auto& [host, devices] : members) {
      if (devices.size() > 1) Limit(LeastRate(network.links.host_rates), rate);
      if (members.size() == 1) continue;
      Limit(SumOf(network.nics.host_rates.out, devices), rate);
      Limit(SumOf(network.nics.host_rates.in, devices), rate);
    }
  }
  LimitByRacks(network.hosts, groups, rate);
  return std::max<int64_t>(rate, 1);
}

// The most that any two hosts are apart.
double LatencySeconds(const HostNetwork& hosts) {
  if (hosts.hosts.size() == 1 || !hosts.has_latencies()) return 0;
  return std::ranges::max(hosts.out_latency_seconds) + std::ranges::max(hosts.in_latency_seconds);
}

}  // namespace

std::vector<int32_t> RingsOfHosts(const GpuNetwork& network, const GroupedCollective& collective) {
  std::vector<int32_t> rings(network.hosts.hosts.size(), 0);
  for (const std::vector<DeviceRank>& group : collective.groups) {
    const HostMembers members = MembersByHost(network, group);
    if (members.size() < 2) continue;
    for (const auto& [host, devices] : members) ++rings[host];
  }
  return rings;
}

double PredictRing(const GpuNetwork& network, const RingCollective& ring) {
  const GroupedCollective& collective = ring.collective;
  const auto passes = static_cast<double>(ring.passes());
  const auto piece_bytes = static_cast<double>(ring.piece_bytes);
  const bool leaves_hosts = std::ranges::max(RingsOfHosts(network, collective)) > 0;
  double seconds = network.costs.step_seconds() +
                   static_cast<double>(ring.calls) * network.costs.message_seconds();
  seconds += passes *
             (gpu_costs::kRingForwardSeconds + (leaves_hosts ? LatencySeconds(network.hosts) : 0));
  seconds += passes * piece_bytes / static_cast<double>(RingRate(network, collective));
  if (Reduces(collective.kind)) return seconds;
  const auto copy_rate = static_cast<double>(std::ranges::min(network.copy_rates));
  return seconds + static_cast<double>(collective.ranks()) * piece_bytes / copy_rate;
}

}  // namespace crossmesh
