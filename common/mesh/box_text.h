#pragma once

#include "common/mesh/box.h"
#include "common/mesh/text_scanner.h"

#include <absl/status/statusor.h>

namespace crossmesh {

// One box as a part of a longer text. Private to the module.
absl::StatusOr<Box> ScanBox(TextScanner& scanner);

}  // namespace crossmesh
