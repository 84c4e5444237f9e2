#pragma once

#include "common/plan/plan.h"

#include <cstdint>

namespace crossmesh {

// How a chunk lies in staging and goes over the wire. With checksums its leaves' hashes, 8 bytes
// each, follow its packed bytes, at a multiple of 16: what the root wrote there every device of the
// relay passes on as it came.
struct ChunkMessage {
  static constexpr int64_t kHashAlignment = 16;
  static constexpr int64_t kHashBytes = 8;
  // Where messages may begin in staging.
  static constexpr int64_t kPlaceAlignment = 256;

  int64_t chunk_bytes = 0;
  bool checksums = true;

  static constexpr int64_t RoundUp(int64_t bytes, int64_t multiple) {
    return (bytes + multiple - 1) / multiple * multiple;
  }
  // From the message's first byte.
  int64_t hashes_offset() const { return RoundUp(chunk_bytes, kHashAlignment); }
  int64_t leaves() const { return Plan::LeavesOf(chunk_bytes); }
  int64_t bytes() const {
    return checksums ? hashes_offset() + kHashBytes * leaves() : chunk_bytes;
  }
  // That it takes of staging.
  int64_t place_bytes() const { return RoundUp(bytes(), kPlaceAlignment); }
};

}  // namespace crossmesh
