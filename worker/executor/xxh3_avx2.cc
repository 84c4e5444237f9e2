// The one file that is compiled for AVX2 (see CMakeLists.txt). It includes nothing that has inline
// functions with external linkage: the linker might keep this file's version of them for all files.

#include "worker/executor/xxh3_avx2.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace crossmesh {

uint64_t Xxh3Avx2(const void* bytes, size_t size) { return XXH3_64bits(bytes, size); }

}  // namespace crossmesh
