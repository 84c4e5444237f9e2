#include "worker/gpu/devices/gpu_name.h"

#include "common/base/status_macros.h"
#include "common/communicators/gpu_share.h"

#include <utility>

#include <absl/status/status.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

namespace crossmesh {
namespace {

absl::Status CheckShare(absl::string_view text, absl::string_view gpu) {
  int number = 0;
  const absl::string_view share = gpu.substr(UuidOf(gpu).size() + 1);
  if (absl::SimpleAtoi(share, &number) && absl::StrCat(number) == share && number >= 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "GPU \"", text, "\": expected a share's number, as in GPU-4bd8...:0, found \"", share, "\""));
}

}  // namespace

absl::StatusOr<GpuName> ParseGpuName(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('=', 1));
  if (!absl::StartsWith(parts.second, "GPU-") && !absl::StartsWith(parts.second, "MIG-")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "GPU \"", text,
        "\": expected DEVICE=UUID, e.g. node-a.0=GPU-4bd8..., or MIG-... of an instance"));
  }
  if (IsGpuShare(parts.second)) RETURN_IF_ERROR(CheckShare(text, parts.second));
  ASSIGN_OR_RETURN(DeviceId device, ParseDevice(parts.first));
  return GpuName{.device = std::move(device), .gpu = std::string(parts.second)};
}

}  // namespace crossmesh
