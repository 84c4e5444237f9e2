#include "worker/transport/pieces.h"

#include "worker/transport/piece_cursor.h"

namespace crossmesh {

uint64_t BytesOf(Pieces pieces) {
  uint64_t bytes = 0;
  for (const iovec& piece : pieces) bytes += piece.iov_len;
  return bytes;
}

void CopyPieces(Pieces from, Pieces into) {
  PieceCursor cursor(into);
  for (const iovec& piece : from) {
    cursor.Fill({static_cast<const std::byte*>(piece.iov_base), piece.iov_len});
  }
}

}  // namespace crossmesh
