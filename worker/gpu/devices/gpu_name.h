#pragma once

#include "common/mesh/device.h"

#include <string>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Which GPU a device of a worker is.
struct GpuName {
  DeviceId device;
  std::string gpu;  // its UUID, or that of a share (common/communicators/gpu_share.h)

  friend bool operator==(const GpuName&, const GpuName&) = default;
};

// "node-a.4=GPU-4bd8...", or "MIG-" for an instance of a GPU; with ":0" for a share.
// InvalidArgument, with the text, for anything else.
absl::StatusOr<GpuName> ParseGpuName(absl::string_view text);

}  // namespace crossmesh
