#pragma once

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {

// InvalidArgument: what was expected of an API message and what was found, in parts.
template <typename... Parts>
absl::Status Refused(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

}  // namespace crossmesh
