#pragma once

#include "common/mesh/text_scanner.h"

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

namespace crossmesh {

// The devices first to last, inclusive, of one host: "a.0-3", or "a.0" for one. Private to the
// module.
struct DeviceRange {
  std::string host;
  int32_t first = 0;
  int32_t last = 0;
};

absl::StatusOr<DeviceRange> ScanDeviceRange(TextScanner& scanner);

}  // namespace crossmesh
