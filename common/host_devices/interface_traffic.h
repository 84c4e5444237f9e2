#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace crossmesh {

// What a network interface has moved since the system started, all of the host's processes
// together.
struct InterfaceTraffic {
  int64_t sent_bytes = 0;
  int64_t received_bytes = 0;
};

// Of a network interface, or of the first port of an RDMA device, by the counters of /sys below
// this folder, which ends in '/'. Nothing when it has none.
std::optional<InterfaceTraffic> ReadInterfaceTraffic(const std::string& root,
                                                     const std::string& name);

}  // namespace crossmesh
