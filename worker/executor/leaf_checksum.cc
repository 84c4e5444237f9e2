#include "worker/executor/leaf_checksum.h"

#include "common/plan/plan.h"
#include "worker/executor/xxh3_avx2.h"

#include <algorithm>
#include <bit>

#include <xxhash.h>

namespace crossmesh {
namespace {

uint64_t Xxh3(const void* bytes, size_t size) {
#if defined(__x86_64__)
  // The library as distributed uses SSE2 only, at a fourth of the speed.
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  if (has_avx2) return Xxh3Avx2(bytes, size);
#endif
  return XXH3_64bits(bytes, size);
}

}  // namespace

uint64_t HashLeaf(std::span<const std::byte> leaf) { return Xxh3(leaf.data(), leaf.size()); }

void HashLeaves(std::span<const std::byte> chunk, std::span<uint64_t> hashes) {
  for (uint64_t& hash : hashes) {
    const std::span<const std::byte> leaf =
        chunk.first(std::min<size_t>(chunk.size(), Plan::kLeafBytes));
    hash = HashLeaf(leaf);
    chunk = chunk.subspan(leaf.size());
  }
}

uint64_t ChecksumOfLeaves(std::span<const uint64_t> leaf_hashes) {
  static_assert(std::endian::native == std::endian::little, "leaf hashes are little endian");
  return Xxh3(leaf_hashes.data(), leaf_hashes.size_bytes());
}

}  // namespace crossmesh
