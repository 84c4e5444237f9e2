#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <sys/uio.h>

namespace crossmesh {

// A payload in memory: its pieces, in order. None is empty. Of what is sent the bytes are only
// read, though the type cannot say so.
using Pieces = std::span<const iovec>;

inline iovec PieceOf(std::span<const std::byte> memory) {
  return {.iov_base = const_cast<std::byte*>(memory.data()), .iov_len = memory.size()};
}

// Memory that peers of this host may map: the beginning of a memfd of this process, sealed against
// shrinking.
struct LentMemory {
  std::span<const std::byte> bytes;
  int fd = -1;
};

uint64_t BytesOf(Pieces pieces);
// Copies the first pieces to the second ones, which have as many bytes.
void CopyPieces(Pieces from, Pieces into);

}  // namespace crossmesh
