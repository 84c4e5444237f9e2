#pragma once

#include "worker/transport/pieces.h"

#include <cstddef>
#include <span>

namespace crossmesh {

// How far the bytes of a payload in pieces have come. The list of pieces must stay. A value.
class PieceCursor {
 public:
  struct Listed {
    size_t pieces = 0;
    size_t bytes = 0;
    bool all = true;  // nothing comes after
  };

  PieceCursor() = default;
  explicit PieceCursor(Pieces pieces) : pieces_(pieces) {}

  bool done() const { return pieces_.empty(); }
  // Lists what comes next, at most `bytes_max` bytes and as many pieces as `list` has place for.
  Listed List(std::span<iovec> list, size_t bytes_max) const;
  // `bytes` is no more than what is left.
  void Advance(size_t bytes);
  // What comes next in one piece. Not when done.
  std::span<std::byte> Next() const {
    return std::span(static_cast<std::byte*>(pieces_[0].iov_base), pieces_[0].iov_len)
        .subspan(offset_);
  }
  // Where the piece after that begins; null after the last one. Not when done.
  const std::byte* FollowingPiece() const {
    return pieces_.size() > 1 ? static_cast<const std::byte*>(pieces_[1].iov_base) : nullptr;
  }
  // Copies what comes next from `bytes`, as far as both have bytes; returns how many.
  size_t Fill(std::span<const std::byte> bytes);

 private:
  Pieces pieces_;      // the first is not done
  size_t offset_ = 0;  // in the first
};

// Copies what comes next of `from` to what comes next of `into`, as far as both have bytes and at
// most `bytes_max`, and advances both. Returns how many bytes.
size_t CopyNext(PieceCursor& from, PieceCursor& into, size_t bytes_max);

}  // namespace crossmesh
