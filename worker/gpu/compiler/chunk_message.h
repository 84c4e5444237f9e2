#pragma once

#include "common/plan/plan.h"

#include <cstdint>

namespace crossmesh {

// How a chunk lies in staging and goes over the wire. With checksums its leaves' hashes, 8 bytes
// each, follow its packed bytes, at a multiple of 16: what the root wrote there every device of the
// relay passes on as it came. Where NCCL M2N moves the bytes, a message is of the hashes alone.
struct ChunkMessage {
  static constexpr int64_t kHashAlignment = 16;
  static constexpr int64_t kHashBytes = 8;
  // Where messages may begin in staging.
  static constexpr int64_t kPlaceAlignment = 256;

  int64_t chunk_bytes = 0;
  bool checksums = true;
  bool has_bytes = true;

  static constexpr int64_t RoundUp(int64_t bytes, int64_t multiple) {
    return (bytes + multiple - 1) / multiple * multiple;
  }
  // From the message's first byte.
  int64_t hashes_offset() const { return has_bytes ? RoundUp(chunk_bytes, kHashAlignment) : 0; }
  int64_t leaves() const { return Plan::LeavesOf(chunk_bytes); }
  int64_t bytes() const {
    const int64_t packed = has_bytes ? chunk_bytes : 0;
    return checksums ? hashes_offset() + kHashBytes * leaves() : packed;
  }
  // That it takes of staging.
  int64_t place_bytes() const { return RoundUp(bytes(), kPlaceAlignment); }
};

}  // namespace crossmesh
