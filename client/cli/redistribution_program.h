#pragma once

#include "planner/redistribute/derivation.h"

#include <string>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// A derivation as a Python program of a framework's own collectives, "torch" or "jax": the program
// of client/emit with the steps as data. InvalidArgument: a relay for JAX, which has no such
// collective, or another framework; the system's error when the program's text is not there.
absl::StatusOr<std::string> EmitProgram(const Derivation& derivation, absl::string_view framework);

}  // namespace crossmesh
