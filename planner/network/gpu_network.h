#pragma once

#include "common/mesh/topology.h"
#include "common/plan/tensor_table.h"
#include "planner/network/host_network.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace crossmesh {

// The described network as seen by the devices of a table that are all GPUs. Where host memory has
// all NICs of its host, a GPU has ports of its own: its NIC, towards other hosts, and its links,
// towards the other GPUs of its host. So there are networks of three kinds of places, each of which
// the host's algorithms take as they are. Immutable value.
struct GpuNetwork {
  // Places are devices, by rank, and ports their NICs, with racks. GPUs that share a NIC have equal
  // parts of it.
  HostNetwork nics;
  // Places are devices, and ports their links. Without racks.
  HostNetwork links;
  // Places are hosts, and ports the NICs of those GPUs that take part, together. With racks.
  HostNetwork hosts;

  std::vector<HostRank> host_of;    // by device
  std::vector<int64_t> copy_rates;  // of kernels, likewise, in bytes per second
  GpuCosts costs;                   // beside the ports
  bool shares_nics = false;         // some NIC is that of several of these GPUs

  bool OnOneHost(DeviceRank a, DeviceRank b) const { return host_of[a] == host_of[b]; }
};

// Nothing where some device is not listed as a GPU of its host. Cost: linear in the devices.
std::optional<GpuNetwork> GpuNetworkOf(const TensorTable& tensors, const Topology& topology);
// The same of the GPUs among the devices: the others are places too, and take no part.
GpuNetwork GpuNetworkAmong(const TensorTable& tensors, const Topology& topology);

}  // namespace crossmesh
