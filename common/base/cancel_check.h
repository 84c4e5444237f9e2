#pragma once

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>

namespace crossmesh {

// Returns true once the result of a long computation is not wanted any more. Called often, so it
// must be cheap.
using CancelCheck = absl::FunctionRef<bool()>;

inline bool NeverCancelled() { return false; }

// Cancelled when it is so.
inline absl::Status CheckWanted(CancelCheck cancelled) {
  return cancelled() ? absl::CancelledError("the result is not wanted any more") : absl::OkStatus();
}

}  // namespace crossmesh
