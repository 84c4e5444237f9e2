#pragma once

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Writes to standard output, at once. What it does not take is an error, "cannot write to standard
// output" with the system's reason, from then on.
absl::Status WriteToStandardOutput(absl::string_view text);

}  // namespace crossmesh
