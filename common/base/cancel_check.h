#pragma once

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>

namespace crossmesh {

// Asks whether nobody wants the result of a long computation any more. Asked often, so cheap.
using CancelCheck = absl::FunctionRef<bool()>;

inline bool NeverCancelled() { return false; }

// Cancelled when it is so.
inline absl::Status CheckWanted(CancelCheck cancelled) {
  return cancelled() ? absl::CancelledError("nobody waits for the result") : absl::OkStatus();
}

}  // namespace crossmesh
