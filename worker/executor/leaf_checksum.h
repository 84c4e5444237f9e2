#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace crossmesh {

// Checksums of a relay: its packed bytes are cut into leaves of Plan::kLeafBytes, each hashed by
// XXH3-64; the relay's checksum is XXH3-64 over its leaf hashes, little endian and in order. So
// leaves may be hashed in any order, and by any kind of processor.
uint64_t HashLeaf(std::span<const std::byte> leaf);
// Of all leaves of a chunk in one piece.
void HashLeaves(std::span<const std::byte> chunk, std::span<uint64_t> hashes);
uint64_t ChecksumOfLeaves(std::span<const uint64_t> leaf_hashes);

}  // namespace crossmesh
