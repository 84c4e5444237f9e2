#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace crossmesh {

// Bytes on their way to a socket, in order. Keeps its memory. Thread-compatible.
class ByteQueue {
 public:
  size_t size() const { return bytes_.size() - first_; }
  std::span<const std::byte> bytes() const { return std::span(bytes_).subspan(first_); }
  // All that were ever pushed or popped: places in the stream.
  uint64_t pushed() const { return popped_ + size(); }
  uint64_t popped() const { return popped_; }

  void Push(std::span<const std::byte> more) {
    if (more.empty()) return;
    const size_t before = bytes_.size();
    bytes_.resize(before + more.size());
    std::memcpy(&bytes_[before], more.data(), more.size());
  }
  template <typename T>
    requires std::is_trivially_copyable_v<T>
  void PushObject(const T& object) {
    Push(std::as_bytes(std::span(&object, 1)));
  }
  void Pop(size_t count) {
    first_ += count;
    popped_ += count;
    // Amortised: what is moved is no more than what has gone before.
    if (2 * first_ >= bytes_.size()) {
      bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(first_));
      first_ = 0;
    }
  }

 private:
  std::vector<std::byte> bytes_;
  size_t first_ = 0;
  uint64_t popped_ = 0;
};

}  // namespace crossmesh
