#pragma once

#include "common/mesh/layout.h"
#include "common/mesh/text_scanner.h"

#include <optional>

#include <absl/status/statusor.h>

namespace crossmesh {

// A layout that may leave its rank open: "[data, ...]". Private to the module.
struct LayoutTemplate {
  Layout layout;
  // Where in the axis layout's dimensions "..." stands, if it does.
  std::optional<size_t> ellipsis;
};

// A layout or template as a part of a longer text.
absl::StatusOr<LayoutTemplate> ScanLayout(TextScanner& scanner);

}  // namespace crossmesh
