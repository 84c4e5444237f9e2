#include "common/base/freed_memory.h"

#include <cstddef>
#include <fstream>

#include <malloc.h>
#include <unistd.h>

namespace crossmesh {
namespace {

constexpr int kMebibyte = 1 << 20;
constexpr int kKeptBytesMax = 512 * kMebibyte;

size_t ResidentBytes() {
  size_t mapped_pages = 0;
  size_t resident_pages = 0;
  std::ifstream("/proc/self/statm") >> mapped_pages >> resident_pages;
  return resident_pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

void KeepFreedMemory() {
  // Arrays of any usual size come from the heap, which grows by large steps and keeps what it has.
  // Another allocator, a sanitizer's, takes no such settings, and needs none.
  mallopt(M_MMAP_THRESHOLD, 1024 * kMebibyte);
  mallopt(M_TOP_PAD, 64 * kMebibyte);
  mallopt(M_TRIM_THRESHOLD, kKeptBytesMax);
}

void GiveBackFreedMemory() {
  const size_t resident = ResidentBytes();
  if (resident <= kKeptBytesMax) return;
  // What is free need not be in memory, so it is counted as what is there and not in use.
  const struct mallinfo2 figures = mallinfo2();
  if (resident > figures.uordblks + figures.hblkhd + kKeptBytesMax) malloc_trim(0);
}

}  // namespace crossmesh
