#include "common/base/freed_memory.h"

#include "common/base/check.h"

#include <malloc.h>

namespace crossmesh {
namespace {

constexpr int kMebibyte = 1 << 20;

}  // namespace

void KeepFreedMemory() {
  // Arrays of any usual size come from the heap, which grows by large steps and keeps what it has.
  CHECK(mallopt(M_MMAP_THRESHOLD, 1024 * kMebibyte) == 1);
  CHECK(mallopt(M_TOP_PAD, 64 * kMebibyte) == 1);
  CHECK(mallopt(M_TRIM_THRESHOLD, 512 * kMebibyte) == 1);
}

}  // namespace crossmesh
