#pragma once

#include <cstdint>
#include <random>

namespace crossmesh {

// From the system's random source.
inline uint64_t RandomNumber() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace crossmesh
