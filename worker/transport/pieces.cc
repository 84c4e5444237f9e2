#include "worker/transport/pieces.h"

#include <algorithm>
#include <cstring>

namespace crossmesh {

uint64_t BytesOf(Pieces pieces) {
  uint64_t bytes = 0;
  for (const iovec& piece : pieces) bytes += piece.iov_len;
  return bytes;
}

void CopyPieces(Pieces from, Pieces into) {
  size_t from_offset = 0;
  size_t into_offset = 0;
  while (!from.empty() && !into.empty()) {
    const size_t step = std::min(from[0].iov_len - from_offset, into[0].iov_len - into_offset);
    std::memcpy(static_cast<std::byte*>(into[0].iov_base) + into_offset,
                static_cast<const std::byte*>(from[0].iov_base) + from_offset, step);
    from_offset += step;
    into_offset += step;
    if (from_offset == from[0].iov_len) {
      from = from.subspan(1);
      from_offset = 0;
    }
    if (into_offset == into[0].iov_len) {
      into = into.subspan(1);
      into_offset = 0;
    }
  }
}

}  // namespace crossmesh
