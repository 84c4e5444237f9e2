#pragma once

#include "common/mesh/conversion.h"

namespace crossmesh {

// A kernel, and what it makes of elements.
struct KernelOfTypes {
  const char* name;  // as in Kernels()
  Conversion types;
};

}  // namespace crossmesh
