#pragma once

#include <cstddef>
#include <cstdint>

namespace crossmesh {

// As memcpy, for copies that are not read soon: where the processor can, the bytes go past its
// caches, which saves reading each destination line before it is overwritten. Small copies are
// plain ones. This thread sees the bytes at once; other threads see them as after memcpy only once
// FinishStreaming was called, which waits for the last of them to leave.
void CopyStreaming(std::byte* to, const std::byte* from, int64_t bytes);
void FinishStreaming();

}  // namespace crossmesh
