#pragma once

#include <compare>
#include <cstdint>
#include <ostream>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// A memory space of a host: a GPU, or an arena of host memory. Text form "HOST.INDEX", split at the
// last dot, e.g. "node-a.3". Host names match [a-z0-9._-]{1,63}; 0 <= index < 1024.
struct DeviceId {
  std::string host;
  int32_t index = 0;

  friend auto operator<=>(const DeviceId&, const DeviceId&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const DeviceId& d) {
    return H::combine(std::move(h), d.host, d.index);
  }
};

inline constexpr int32_t kDevicesPerHostMax = 1024;

// Does `name` match the pattern of host names?
bool IsHostName(absl::string_view name);

// InvalidArgument when the host's name or the index is outside of what is said above.
absl::Status Validate(const DeviceId& device);

std::string ToString(const DeviceId& device);
// InvalidArgument, naming the text and what was expected.
absl::StatusOr<DeviceId> ParseDevice(absl::string_view text);
inline std::ostream& operator<<(std::ostream& out, const DeviceId& d) { return out << ToString(d); }

}  // namespace crossmesh
