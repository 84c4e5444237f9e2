#pragma once

#include "common/mesh/conversion.h"
#include "common/plan/testing/random_source.h"
#include "worker/gpu/kernels/leaf_hash.h"
#include "worker/gpu/kernels/testing/box_memory.h"

namespace crossmesh {

// A kernel, and what it makes of elements.
struct KernelOfTypes {
  const char* name;  // as in Kernels()
  Conversion types;
};

// Boxes of what it reads, of up to about three leaves.
inline BoxMemory SourcesOf(const KernelOfTypes& kernel, RandomSource& random) {
  return BoxMemory({.packed_bytes = random.Between(1, 5 * kLeafBytes / 2), .types = kernel.types},
                   random);
}

}  // namespace crossmesh
