#pragma once

#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Raises the exception of crossmesh.errors for a status that is not OK. The GIL must be held.
[[noreturn]] void RaiseStatus(const absl::Status& status);

inline void OrRaise(const absl::Status& status) {
  if (!status.ok()) RaiseStatus(status);
}

template <typename Value>
Value OrRaise(absl::StatusOr<Value> result) {
  if (!result.ok()) RaiseStatus(result.status());
  return *std::move(result);
}

}  // namespace crossmesh
