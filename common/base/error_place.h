#pragma once

#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// The error with what it is about before its message, "WHERE: MESSAGE", and the same code. What is
// OK stays as it is.
absl::Status At(absl::string_view where, const absl::Status& status);

template <typename Value>
absl::StatusOr<Value> At(absl::string_view where, absl::StatusOr<Value> result) {
  if (result.ok()) return result;
  return At(where, result.status());
}

}  // namespace crossmesh
