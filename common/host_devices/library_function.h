#pragma once

#include <string>

#include <absl/status/statusor.h>

namespace crossmesh {

// A function of a shared library, which is then never closed: what it began may outlive its last
// call. `library` is a file, or a name that the system's loader looks for. NotFound: there is no
// such library, or it lacks the function.
absl::StatusOr<void*> FindFunction(const std::string& library, const char* name);

}  // namespace crossmesh
