// The end of a process, for any process that has a descriptor of it, its parent or not.

#pragma once

#include "common/base/unique_fd.h"

#include <absl/status/statusor.h>
#include <absl/time/time.h>
#include <sys/types.h>

namespace crossmesh {

// A descriptor that can be read once the process has ended. NotFound when there is none of that
// number; ResourceExhausted without descriptors; FailedPrecondition where the system, or a filter
// of its calls, lacks the call for it.
absl::StatusOr<UniqueFd> OpenProcess(pid_t process);

// Waits for the end of a process at most so long. Whether it has ended.
bool AwaitEnd(const UniqueFd& process, absl::Duration timeout);

}  // namespace crossmesh
