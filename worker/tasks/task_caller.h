#pragma once

#include "crossmesh/v1/execution_service.pb.h"

#include <absl/status/status.h>

namespace crossmesh {

// Who called Execute, as the task sees it. Shared by its call and by the task that it is attached
// to. Implementations never block and never call back from inside.
class TaskCaller {
 public:
  virtual ~TaskCaller() = default;
  virtual void Say(const v1::ExecuteResponse& response) = 0;
  // Ends the call; nothing is said after it. Only the first End counts.
  virtual void End(const absl::Status& status) = 0;
};

}  // namespace crossmesh
