#pragma once

#include <cstdint>

namespace crossmesh {

// An address of a GPU as the arguments of kernels have it. The host does not follow it.
template <class T>
T* DevicePointer(uint64_t address) {
  return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace crossmesh
