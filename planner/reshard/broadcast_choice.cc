#include "planner/reshard/broadcast_choice.h"

#include "common/plan/broadcast_groups.h"
#include "planner/network/gpu_costs.h"
#include "planner/network/port_load.h"
#include "planner/network/routing.h"

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace crossmesh {
namespace {

// The relays of a group, and what they are cut into.
struct GroupRoutes {
  Routes routes;
  int64_t bytes = 0;
  int64_t chunks = 0;
  int32_t last_period = 0;  // of a hop
};

double Seconds(int64_t bytes, int64_t rate) {
  return static_cast<double>(bytes) / static_cast<double>(rate);
}

class BroadcastChooser {
 public:
  BroadcastChooser(const HostNetwork& network, const GpuCosts& costs, const Plan::Spec& plan)
      : network_(network),
        step_seconds_(costs.step_seconds()),
        plan_(plan),
        tensors_(*plan.tensors) {}

  BroadcastFigures Compare(std::span<const DeviceRank> group, const GroupRoutes& of_group) const {
    const int64_t steps = std::min(of_group.chunks, std::max<int64_t>(plan_.periods, 1));
    std::vector<DeviceId> devices;
    for (const DeviceRank device : group) devices.push_back(tensors_.devices()[device]);
    return {.devices = DevicesToString(devices),
            .relay_seconds = RelaySeconds(of_group, steps),
            .broadcast_seconds = BroadcastSeconds(group, of_group, steps)};
  }

 private:
  double RelaySeconds(const GroupRoutes& of_group, int64_t steps) const {
    const PortLoad load = ComputePortLoad(tensors_, network_, of_group.routes);
    const double busy = FindBusiestPort(load, network_).seconds / static_cast<double>(steps);
    const auto steps_in_all = static_cast<double>(steps + of_group.last_period);
    return steps_in_all * (busy + step_seconds_) + load.latency_seconds;
  }

  double BroadcastSeconds(std::span<const DeviceRank> group, const GroupRoutes& of_group,
                          int64_t steps) const {
    std::vector<HostRank> hosts;
    for (const DeviceRank device : group) hosts.push_back(tensors_.host_of(device));
    std::ranges::sort(hosts);
    const auto repeated = std::ranges::unique(hosts);
    hosts.erase(repeated.begin(), repeated.end());
    double seconds = 0;
    double call =
        step_seconds_ + static_cast<double>(group.size() - 2) * gpu_costs::kRingForwardSeconds;
    if (hosts.size() > 1) {
      const int64_t rate = RingRate(hosts);
      seconds = Seconds(of_group.bytes, rate);
      // A ring hands a slice on once all of it is there: every host but two adds one slice and one
      // latency to a call.
      const int64_t slice = std::min(of_group.bytes / steps, gpu_costs::kRingSliceBytes);
      call += static_cast<double>(hosts.size() - 2) * Seconds(slice, rate);
      call += static_cast<double>(hosts.size() - 1) * LatencySeconds(hosts);
    }
    return seconds + static_cast<double>(steps) * call;
  }

  // Of the slowest port. NCCL says nothing of the order in which it joins the ranks.
  int64_t RingRate(std::span<const HostRank> hosts) const {
    int64_t rate = std::numeric_limits<int64_t>::max();
    for (const HostRank host : hosts) {
      const int64_t out = network_.host_rates.out[host], in = network_.host_rates.in[host];
      rate = std::min({rate, out, in});
      // A ring over two racks enters and leaves both, wherever NCCL puts the ranks.
      if (!network_.CrossesRacks(host, hosts.front())) continue;
      for (const int32_t rack :
           {network_.rack_of_host[host], network_.rack_of_host[hosts.front()]}) {
        for (const int64_t uplink : {network_.rack_rates.out[rack], network_.rack_rates.in[rack]}) {
          if (uplink != PortRates::kUnlimited) rate = std::min(rate, uplink);
        }
      }
    }
    return rate;
  }

  // The most that any two of them are apart.
  double LatencySeconds(std::span<const HostRank> hosts) const {
    if (!network_.has_latencies()) return 0;
    double out = 0, in = 0;
    for (const HostRank host : hosts) {
      out = std::max(out, network_.out_latency_seconds[host]);
      in = std::max(in, network_.in_latency_seconds[host]);
    }
    return out + in;
  }

  const HostNetwork& network_;
  const double step_seconds_;
  const Plan::Spec& plan_;
  const TensorTable& tensors_;
};

// By group.
std::vector<GroupRoutes> RoutesOf(const Plan::Spec& plan, const IdSetList& groups) {
  std::vector<int32_t> group_of(plan.tensors->devices().size(), -1);
  for (int32_t i = 0; i < groups.size(); ++i) {
    for (const DeviceRank device : groups[i]) group_of[device] = i;
  }
  std::vector<GroupRoutes> of_groups(groups.size());
  for (const Relay& relay : plan.relays) {
    if (group_of[relay.root] < 0) continue;
    GroupRoutes& of_group = of_groups[group_of[relay.root]];
    const int64_t bytes = relay.end - relay.begin;
    of_group.bytes += bytes;
    of_group.chunks += RelayChunks(bytes, relay.due, plan.chunk_bytes, plan.periods);
    Relay& copy = of_group.routes.relays.emplace_back(relay);
    copy.first_hop = std::ssize(of_group.routes.hops);
    for (const Hop& hop : std::span(plan.hops).subspan(relay.first_hop, relay.hop_count)) {
      of_group.routes.hops.push_back(hop);
      of_group.last_period = std::max(of_group.last_period, hop.period);
    }
  }
  return of_groups;
}

}  // namespace

void ChooseBroadcasts(const HostNetwork& network, const GpuCosts& costs, Plan::Spec& plan) {
  const IdSetList groups =
      FindBroadcastGroups(plan.relays, plan.hops, plan.tensors->devices().size());
  if (groups.size() == 0) return;
  const std::vector<GroupRoutes> of_groups = RoutesOf(plan, groups);
  const BroadcastChooser chooser(network, costs, plan);
  for (int32_t i = 0; i < groups.size(); ++i) {
    BroadcastFigures figures = chooser.Compare(groups[i], of_groups[i]);
    if (figures.is_chosen()) plan.broadcast_groups.Add(groups[i]);
    plan.figures.broadcasts.push_back(std::move(figures));
  }
}

double SecondsWithBroadcasts(const Plan::Spec& plan) {
  std::vector<bool> broadcasts(plan.tensors->devices().size());
  for (int32_t group = 0; group < plan.broadcast_groups.size(); ++group) {
    for (const DeviceRank device : plan.broadcast_groups[group]) broadcasts[device] = true;
  }
  const bool has_all =
      std::ranges::all_of(plan.relays, [&](const Relay& relay) { return broadcasts[relay.root]; });
  if (!has_all || plan.relays.empty()) return plan.figures.predicted_seconds;
  double seconds = 0;
  for (const BroadcastFigures& group : plan.figures.broadcasts) {
    seconds = std::max(seconds, group.broadcast_seconds);
  }
  return seconds;
}

}  // namespace crossmesh
