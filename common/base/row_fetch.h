#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace crossmesh {

// Has a row that is read next fetched into the processor's second cache while the one before it is
// read. Processors see what is read in one piece coming, but not where the next row of a few KiB
// begins; and of rows in memory, few lines may be on their way to the first cache at a time. `row`
// may be any address.
inline void FetchRow(const std::byte* row, size_t bytes) {
  constexpr size_t kLineBytes = 64;
  constexpr size_t kFetchedBytesMax = 8 << 10;
  constexpr int kToRead = 0, kSecondCache = 2;
  const auto begin = reinterpret_cast<uintptr_t>(row);
  for (size_t i = 0; i < std::min(bytes, kFetchedBytesMax); i += kLineBytes) {
    __builtin_prefetch(reinterpret_cast<const void*>(begin + i), kToRead, kSecondCache);
  }
}

}  // namespace crossmesh
