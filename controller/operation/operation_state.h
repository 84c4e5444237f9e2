#pragma once

#include <cstdint>

#include <absl/strings/string_view.h>

namespace crossmesh {

enum class OperationState : uint8_t {
  kPreparing,
  kRunning,
  kVerifying,
  kCommitted,
  kPartial,
  kFailed,
  kCancelled,
};
absl::string_view OperationStateName(OperationState state);
bool IsTerminal(OperationState state);

}  // namespace crossmesh
