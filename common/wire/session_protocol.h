#pragma once

#include <cstdint>

namespace crossmesh {

// What worker and controller speak to each other. Raised by every change that the other side has to
// know of; a worker joins only a controller of the same number.
inline constexpr int32_t kSessionProtocol = 3;

}  // namespace crossmesh
