#pragma once

#include <cstddef>
#include <cstdint>

namespace crossmesh {

// As memcpy, for a copy that nobody reads soon: where the processor can, the bytes go past its
// caches, which saves reading each destination line before it is overwritten. Small copies are
// plain ones. Other threads see the bytes as after memcpy.
void CopyStreaming(std::byte* to, const std::byte* from, int64_t bytes);

}  // namespace crossmesh
