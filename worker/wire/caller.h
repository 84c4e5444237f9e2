#pragma once

#include <absl/status/status.h>

namespace crossmesh {

// The other end of a controller's call, as that what it started sees it: an ExecuteResponse goes to
// the caller of a task, a RunProgramResponse to the caller of a program. Shared by the call and by
// what is attached to it. Implementations never block and never call back from inside.
template <typename Response>
class Caller {
 public:
  virtual ~Caller() = default;
  virtual void Say(const Response& response) = 0;
  // Ends the call; nothing is said after it. Only the first End counts.
  virtual void End(const absl::Status& status) = 0;
};

}  // namespace crossmesh
