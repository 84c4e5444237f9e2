#pragma once

#include <cstddef>
#include <cstdint>

namespace crossmesh {

// XXH3-64 compiled for processors with AVX2; to be called on those only.
uint64_t Xxh3Avx2(const void* bytes, size_t size);

}  // namespace crossmesh
