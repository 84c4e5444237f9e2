#pragma once

#include <string>

#include <absl/status/statusor.h>

namespace crossmesh {

// Tells this host, from its start on, apart from others: 16 bytes. Internal: the system does not
// say.
absl::StatusOr<std::string> ReadBootId();

}  // namespace crossmesh
