#pragma once

#include <cstdint>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// InvalidArgument for a field of a worker's part that comes from outside.
inline absl::Status PartError(absl::string_view field, absl::string_view expected, int64_t found) {
  return absl::InvalidArgumentError(
      absl::StrCat("worker's part, ", field, ": expected ", expected, ", found ", found));
}

}  // namespace crossmesh
