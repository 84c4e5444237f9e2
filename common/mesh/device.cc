#include "common/mesh/device.h"

#include "common/base/status_macros.h"
#include "common/mesh/device_text.h"
#include "common/mesh/text_scanner.h"

#include <algorithm>

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr size_t kHostNameBytesMax = 63;
constexpr absl::string_view kHostPattern = "[a-z0-9._-]{1,63}";

bool IsHostCharacter(char c) {
  return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '.' || c == '_' || c == '-';
}

}  // namespace

bool IsHostName(absl::string_view name) {
  return !name.empty() && name.size() <= kHostNameBytesMax &&
         std::all_of(name.begin(), name.end(), IsHostCharacter);
}

absl::Status Validate(const DeviceId& device) {
  if (!IsHostName(device.host)) {
    return absl::InvalidArgumentError(
        absl::StrCat("device on host \"", absl::CHexEscape(device.host.substr(0, 80)),
                     "\": expected a host name of the form ", kHostPattern));
  }
  if (device.index < 0 || device.index >= kDevicesPerHostMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "device ", ToString(device), ": expected an index of 0 to ", kDevicesPerHostMax - 1));
  }
  return absl::OkStatus();
}

std::string ToString(const DeviceId& device) {
  return absl::StrCat(device.host, ".", device.index);
}

absl::StatusOr<DeviceRange> ScanDeviceRange(TextScanner& scanner) {
  const absl::string_view token = scanner.TakeWhile(IsHostCharacter);
  const size_t dot = token.rfind('.');
  if (dot == absl::string_view::npos || !IsHostName(token.substr(0, dot))) {
    return scanner.ErrorAtLast(
        absl::StrCat("a device HOST.INDEX with a host name of the form ", kHostPattern));
  }
  TextScanner indices("", token.substr(dot + 1));
  const absl::StatusOr<int64_t> first = indices.Integer();
  const absl::StatusOr<int64_t> last = indices.Take("-") ? indices.Integer() : first;
  if (!first.ok() || !last.ok() || !indices.AtEnd() || *first > *last ||
      *last >= kDevicesPerHostMax) {
    return scanner.ErrorAtLast(absl::StrCat("a device index, or a run FIRST-LAST of them, of 0 to ",
                                            kDevicesPerHostMax - 1, " after the last dot of \"",
                                            token, "\""));
  }
  return DeviceRange{.host = std::string(token.substr(0, dot)),
                     .first = static_cast<int32_t>(*first),
                     .last = static_cast<int32_t>(*last)};
}

absl::StatusOr<DeviceId> ParseDevice(absl::string_view text) {
  TextScanner scanner("device", text);
  ASSIGN_OR_RETURN(DeviceRange run, ScanDeviceRange(scanner));
  if (run.first != run.last) return scanner.ErrorAtLast("one device, not a run");
  RETURN_IF_ERROR(scanner.ExpectEnd());
  return DeviceId{.host = std::move(run.host), .index = run.first};
}

}  // namespace crossmesh
