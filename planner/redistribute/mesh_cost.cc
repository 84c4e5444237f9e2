#include "planner/redistribute/mesh_cost.h"

#include "common/mesh/gpu_costs.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace crossmesh {
namespace {

// Of host memory; nothing of these was measured yet: a step has every device wake up and say that
// it is there, a message is announced and asked for, and memory is read and written.
constexpr double kHostStepSeconds = 50e-6;
constexpr double kHostMessageSeconds = 10e-6;
constexpr int64_t kHostCopyBytesPerSecond = 10'000'000'000;

// The slowest of the devices, each with its part of what it shares.
class SlowestRates {
 public:
  SlowestRates(const Mesh& mesh, const Topology& topology) : topology_(topology) {
    for (const DeviceId& device : mesh.devices()) ++sharing_[SharedNic(device)];
    for (const DeviceId& device : mesh.devices()) Add(device);
  }

  int64_t nic = std::numeric_limits<int64_t>::max();
  int64_t inside = std::numeric_limits<int64_t>::max();
  double latency_seconds = 0;
  bool all_gpus = true;

 private:
  // Host, and NIC of a GPU; host memory may use any.
  std::pair<std::string, std::string> SharedNic(const DeviceId& device) const {
    const HostGpu* const gpu = topology_.FindGpu(device);
    return {device.host, gpu == nullptr ? "" : gpu->nic};
  }

  void Add(const DeviceId& device) {
    const int64_t sharing = sharing_.at(SharedNic(device));
    const HostGpu* const gpu = topology_.FindGpu(device);
    const Host* const host = topology_.FindHost(device.host);
    int64_t out = topology_.RateOut(device.host);
    int64_t in = topology_.RateIn(device.host);
    int64_t inside_rate = kHostCopyBytesPerSecond;
    if (gpu != nullptr) {
      const Nic& own = *std::ranges::find(host->nics, gpu->nic, &Nic::name);
      out = own.out_bytes_per_second;
      in = own.in_bytes_per_second;
      inside_rate = std::min(gpu->link_out_bytes_per_second, gpu->link_in_bytes_per_second);
    } else {
      all_gpus = false;
      if (host != nullptr && host->local_bytes_per_second > 0) {
        inside_rate = host->local_bytes_per_second / sharing;
      }
    }
    nic = std::min(nic, std::max<int64_t>(1, std::min(out, in) / sharing));
    inside = std::min(inside, std::max<int64_t>(1, inside_rate));
    if (host == nullptr) return;
    for (const Nic& any : host->nics) {
      latency_seconds = std::max(
          latency_seconds, static_cast<double>(any.out_latency_ns + any.in_latency_ns) * 1e-9);
    }
  }

  const Topology& topology_;
  std::map<std::pair<std::string, std::string>, int64_t> sharing_;
};

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
  const SlowestRates rates(mesh, topology);
  const GpuCosts& costs = topology.gpu_costs();
  const double message_seconds = rates.all_gpus ? costs.message_seconds() : kHostMessageSeconds;
  CollectiveCost cost{.seconds_per_step = rates.all_gpus ? costs.step_seconds() : kHostStepSeconds,
                      .links = {}};
  for (int axis = 0; axis < mesh.rank(); ++axis) {
    const int64_t size = mesh.axes()[axis].size;
    const int64_t inside = SizeInsideHosts(mesh, axis);
    if (inside < size) {
      cost.links.push_back({.part = {.axis = axis, .before = 1, .size = size / inside},
                            .seconds_per_message = message_seconds + rates.latency_seconds,
                            .bytes_per_second = static_cast<double>(rates.nic)});
    }
    if (inside > 1) {
      cost.links.push_back({.part = {.axis = axis, .before = size / inside, .size = inside},
                            .seconds_per_message = message_seconds,
                            .bytes_per_second = static_cast<double>(rates.inside)});
    }
  }
  return cost;
}

}  // namespace crossmesh
