#pragma once

#include "common/mesh/topology.h"

#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// A host as it is sold, for networks that nobody has measured: devices 0, 1, ... are its GPUs, and
// its NICs are nic0, nic1, ... Rates are the makers', per direction. InvalidArgument, with all
// presets: there is none of that name.
//
// Example: "h100x8" is 8 GPUs that exchange 450 GB/s each, with a NIC of 400 Gbit/s for each.
absl::StatusOr<Host> GpuHost(absl::string_view preset, std::string name);

// A network of such hosts, and nothing else. Also what Topology::Create refuses.
absl::StatusOr<Topology> GpuHosts(absl::string_view preset, const std::vector<std::string>& names);

std::vector<std::string> GpuHostPresets();

}  // namespace crossmesh
