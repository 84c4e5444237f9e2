#pragma once

#include <absl/functional/function_ref.h>

namespace crossmesh {

// Runs `body` in a thread of its own, to which the system refuses the call with this number
// (SYS_...), with errno `error`.
void RunRefused(int number, int error, absl::FunctionRef<void()> body);

// How many descriptors this process has open.
int CountDescriptors();

}  // namespace crossmesh
