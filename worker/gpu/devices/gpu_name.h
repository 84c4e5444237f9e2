#pragma once

#include "common/mesh/device.h"

#include <string>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Which GPU a device of a worker is.
struct GpuName {
  DeviceId device;
  std::string gpu;  // its UUID

  friend bool operator==(const GpuName&, const GpuName&) = default;
};

// "node-a.4=GPU-4bd8...", or "MIG-" for an instance of a GPU. InvalidArgument, with the text, for
// anything else.
absl::StatusOr<GpuName> ParseGpuName(absl::string_view text);

}  // namespace crossmesh
