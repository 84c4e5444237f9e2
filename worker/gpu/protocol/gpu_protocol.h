// What a worker and the process of a GPU take for granted of each other.

#pragma once

#include <cstdint>

namespace crossmesh {

// Of the messages; both ends must have the same.
inline constexpr uint32_t kGpuProtocol = 9;

// The process finds its end of the socket here.
inline constexpr int kGpuSocketDescriptor = 3;

}  // namespace crossmesh
