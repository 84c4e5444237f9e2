#include "common/base/freed_memory.h"

#include <malloc.h>

namespace crossmesh {
namespace {

constexpr int kMebibyte = 1 << 20;

}  // namespace

void KeepFreedMemory() {
  // Arrays of any usual size come from the heap, which grows by large steps and keeps what it has.
  // Another allocator, a sanitizer's, takes no such settings, and needs none.
  mallopt(M_MMAP_THRESHOLD, 1024 * kMebibyte);
  mallopt(M_TOP_PAD, 64 * kMebibyte);
  mallopt(M_TRIM_THRESHOLD, 512 * kMebibyte);
}

}  // namespace crossmesh
