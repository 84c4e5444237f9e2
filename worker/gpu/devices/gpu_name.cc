#include "worker/gpu/devices/gpu_name.h"

#include "common/base/status_macros.h"

#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

namespace crossmesh {

absl::StatusOr<GpuName> ParseGpuName(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('=', 1));
  if (parts.second.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("GPU \"", text, "\": expected DEVICE=UUID, e.g. node-a.0=GPU-4bd8..."));
  }
  ASSIGN_OR_RETURN(DeviceId device, ParseDevice(parts.first));
  return GpuName{.device = std::move(device), .gpu = std::string(parts.second)};
}

}  // namespace crossmesh
