#pragma once

#include <cstddef>
#include <string>

#include <absl/status/statusor.h>

namespace crossmesh {

inline constexpr size_t kBootIdBytes = 16;

// Tells this host, from its start on, apart from others: kBootIdBytes bytes. Internal: the system
// does not say.
absl::StatusOr<std::string> ReadBootId();

}  // namespace crossmesh
