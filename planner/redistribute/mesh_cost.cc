#include "planner/redistribute/mesh_cost.h"

#include "planner/network/gpu_costs.h"
#include "planner/network/slowest_rates.h"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace crossmesh {
namespace {

// The largest minor part of an axis, as its size, along which no step leaves a host.
int64_t SizeInsideHosts(const Mesh& mesh, int axis) {
  const int64_t size = mesh.axes()[axis].size;
  int64_t stride = 1;
  for (int minor = axis + 1; minor < mesh.rank(); ++minor) stride *= mesh.axes()[minor].size;
  int64_t inside = size;
  for (int64_t slot = 0; slot < mesh.slots(); ++slot) {
    const int64_t coordinate = mesh.Coordinate(slot, axis);
    // The first slot of its part, for the sizes that are left.
    while (inside > 1) {
      const int64_t first = slot - coordinate % inside * stride;
      if (mesh.devices()[first].host == mesh.devices()[slot].host) break;
      do {
        --inside;
      } while (size % inside != 0);
    }
  }
  return inside;
}

}  // namespace

CollectiveCost CostOfMesh(const Mesh& mesh, const Topology& topology) {
  const SlowestRates rates = SlowestRatesOf(mesh.devices(), topology);
  CollectiveCost cost{.seconds_per_step = rates.step_seconds, .links = {}};
  for (int axis = 0; axis < mesh.rank(); ++axis) {
    const int64_t size = mesh.axes()[axis].size;
    const int64_t inside = SizeInsideHosts(mesh, axis);
    if (inside < size) {
      cost.links.push_back({.part = {.axis = axis, .before = 1, .size = size / inside},
                            .seconds_per_message = rates.message_seconds + rates.latency_seconds,
                            .bytes_per_second = static_cast<double>(rates.nic)});
    }
    if (inside > 1) {
      cost.links.push_back({.part = {.axis = axis, .before = size / inside, .size = inside},
                            .seconds_per_message = rates.message_seconds,
                            .bytes_per_second = static_cast<double>(rates.inside)});
    }
  }
  return cost;
}

std::optional<RingCost> RingCostOfMesh(const Mesh& mesh, const Topology& topology) {
  const SlowestRates rates = SlowestRatesOf(mesh.devices(), topology);
  const GpuCosts& costs = topology.gpu_costs();
  RingCost ring{.seconds_per_step = costs.step_seconds() + costs.message_seconds(),
                .seconds_per_pass = gpu_costs::kRingForwardSeconds,
                .seconds_between_hosts = rates.latency_seconds,
                .bytes_per_second_max = static_cast<double>(gpu_costs::kChannels *
                                                            costs.channel_bytes_per_second.value),
                .bytes_per_second_inside = static_cast<double>(rates.inside),
                .bytes_per_second_between_hosts = static_cast<double>(rates.nic),
                .hashed_bytes_per_second = std::numeric_limits<double>::max()};
  for (const DeviceId& device : mesh.devices()) {
    const HostGpu* const gpu = topology.FindGpu(device);
    if (gpu == nullptr) return std::nullopt;
    ring.hashed_bytes_per_second =
        std::min(ring.hashed_bytes_per_second, static_cast<double>(gpu->copy_bytes_per_second));
  }
  for (int axis = 0; axis < mesh.rank(); ++axis) {
    const int64_t size = mesh.axes()[axis].size;
    const int64_t inside = SizeInsideHosts(mesh, axis);
    ring.inside.push_back({.axis = axis, .before = size / inside, .size = inside});
  }
  return ring;
}

}  // namespace crossmesh
