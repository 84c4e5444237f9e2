// How a child of this process ended, told once: after that its number may be another process's.

#pragma once

#include <optional>
#include <string>

#include <sys/types.h>

namespace crossmesh {

// "exit status 70" or "signal 9"; nothing while it runs, or when there is no such child.
std::optional<std::string> ReapChild(pid_t child);

// Waits for its end, which it does not bring about; nothing when there is no such child.
std::optional<std::string> AwaitChild(pid_t child);

}  // namespace crossmesh
