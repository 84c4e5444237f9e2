#pragma once

#include <string>
#include <vector>

namespace crossmesh {

// UUIDs of this host's GPUs, "GPU-4bd8...", in the order of their places on the bus, as the driver
// tells in `folder`; none without a driver.
std::vector<std::string> ListGpus(const std::string& folder = "/proc/driver/nvidia/gpus");

}  // namespace crossmesh
