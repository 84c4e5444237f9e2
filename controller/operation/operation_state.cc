#include "controller/operation/operation_state.h"

namespace crossmesh {

absl::string_view OperationStateName(OperationState state) {
  switch (state) {
    case OperationState::kPreparing:
      return "PREPARING";
    case OperationState::kRunning:
      return "RUNNING";
    case OperationState::kVerifying:
      return "VERIFYING";
    case OperationState::kCommitted:
      return "COMMITTED";
    case OperationState::kPartial:
      return "PARTIAL";
    case OperationState::kFailed:
      return "FAILED";
    case OperationState::kCancelled:
      return "CANCELLED";
  }
  return "UNKNOWN";
}

bool IsTerminal(OperationState state) { return state >= OperationState::kCommitted; }

}  // namespace crossmesh
