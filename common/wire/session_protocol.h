#pragma once

#include <cstdint>
#include <optional>

namespace crossmesh {

// What worker and controller speak to each other. Raised by every change that the other side has to
// know of, once in a minor version at most. A release speaks that of the minor before as well, so
// that workers and controllers can be upgraded one after the other: 0.1 speaks 3, and 0.2 3 and 4.
struct SessionProtocols {
  int32_t oldest = 0;
  int32_t newest = 0;

  friend bool operator==(const SessionProtocols&, const SessionProtocols&) = default;
};
inline constexpr SessionProtocols kSessionProtocols = {.oldest = 3, .newest = 4};

// From which on workers know of courses and of GPUs beside host memory in a part, of layer
// programs, of drains that are taken back, and of controllers that adopt their tasks.
inline constexpr int32_t kCoursesProtocol = 4;

// The newest that both speak; nothing when there is none.
inline std::optional<int32_t> CommonProtocol(const SessionProtocols& a, const SessionProtocols& b) {
  const int32_t newest = a.newest < b.newest ? a.newest : b.newest;
  const int32_t oldest = a.oldest > b.oldest ? a.oldest : b.oldest;
  if (newest < oldest) return std::nullopt;
  return newest;
}

}  // namespace crossmesh
