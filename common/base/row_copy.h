#pragma once

#include <cstddef>
#include <cstdint>

namespace crossmesh {

// As memcpy, to memory that is not in the processor's caches. Where the processor copies short
// strings fast, rows of some KiB are copied so, which saves reading each line of `to` before it is
// overwritten; the C library does that for longer ones only.
void CopyRow(std::byte* to, const std::byte* from, size_t bytes);

// Has the beginning of a row fetched into the caches while something else is done: what comes
// behind its beginning the processor fetches by itself. `row` may be any address.
inline void FetchRow(const std::byte* row) {
  constexpr size_t kLineBytes = 64;
  constexpr size_t kFetchedBytes = 256;
  const auto begin = reinterpret_cast<uintptr_t>(row);
  for (size_t i = 0; i < kFetchedBytes; i += kLineBytes) {
    __builtin_prefetch(reinterpret_cast<const void*>(begin + i));
  }
}

}  // namespace crossmesh
