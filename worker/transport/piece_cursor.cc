#include "worker/transport/piece_cursor.h"

#include "common/base/row_fetch.h"

#include <algorithm>
#include <cstring>

namespace crossmesh {

PieceCursor::Listed PieceCursor::List(std::span<iovec> list, size_t bytes_max) const {
  Listed listed;
  size_t offset = offset_;
  for (const iovec& piece : pieces_) {
    const size_t bytes = std::min(piece.iov_len - offset, bytes_max - listed.bytes);
    listed.all = listed.pieces < list.size() && bytes == piece.iov_len - offset;
    if (listed.pieces == list.size() || bytes == 0) break;
    list[listed.pieces++] = {.iov_base = static_cast<std::byte*>(piece.iov_base) + offset,
                             .iov_len = bytes};
    listed.bytes += bytes;
    offset = 0;
  }
  return listed;
}

void PieceCursor::Advance(size_t bytes) {
  while (bytes > 0) {
    const size_t step = std::min(bytes, pieces_[0].iov_len - offset_);
    bytes -= step;
    offset_ += step;
    if (offset_ < pieces_[0].iov_len) return;
    pieces_ = pieces_.subspan(1);
    offset_ = 0;
  }
}

size_t PieceCursor::Fill(std::span<const std::byte> bytes) {
  size_t filled = 0;
  while (!done() && filled < bytes.size()) {
    const size_t step = std::min(bytes.size() - filled, pieces_[0].iov_len - offset_);
    std::memcpy(static_cast<std::byte*>(pieces_[0].iov_base) + offset_, bytes.data() + filled,
                step);
    filled += step;
    Advance(step);
  }
  return filled;
}

size_t CopyNext(PieceCursor& from, PieceCursor& into, size_t bytes_max) {
  size_t copied = 0;
  while (copied < bytes_max && !from.done() && !into.done()) {
    const std::span<std::byte> source = from.Next();
    const std::span<std::byte> place = into.Next();
    const size_t step = std::min({source.size(), place.size(), bytes_max - copied});
    // The next piece comes into the caches while this one is copied.
    if (const std::byte* const next = from.FollowingPiece(); next != nullptr) FetchRow(next, step);
    std::memcpy(place.data(), source.data(), step);
    from.Advance(step);
    into.Advance(step);
    copied += step;
  }
  return copied;
}

}  // namespace crossmesh
