#include "controller/operation/operation_state.h"

#include <iterator>

namespace crossmesh {

absl::string_view OperationStateName(OperationState state) {
  // In the order of OperationState.
  constexpr absl::string_view kNames[] = {"PREPARING", "RUNNING", "VERIFYING", "COMMITTED",
                                          "PARTIAL",   "FAILED",  "CANCELLED"};
  static_assert(std::size(kNames) == static_cast<size_t>(OperationState::kCancelled) + 1);
  return kNames[static_cast<size_t>(state)];
}

bool IsTerminal(OperationState state) { return state >= OperationState::kCommitted; }

}  // namespace crossmesh
