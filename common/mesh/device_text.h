#pragma once

#include "common/mesh/text_scanner.h"

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

namespace crossmesh {

// The devices first to last, inclusive, of one host: "a.0-3", or "a.0" for one. Private to the
// module.
struct DeviceRun {
  std::string host;
  int32_t first = 0;
  int32_t last = 0;
};

absl::StatusOr<DeviceRun> ScanDeviceRun(TextScanner& scanner);

}  // namespace crossmesh
