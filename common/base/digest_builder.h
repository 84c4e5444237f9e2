#pragma once

#include "common/base/digest.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include <absl/strings/string_view.h>

namespace crossmesh {

// A Digest of bytes that come one after the other, so that no copy of the whole is ever made. The
// same bytes give the same digest as Digest::Of however they are divided. Thread-compatible.
class DigestBuilder {
 public:
  DigestBuilder();
  ~DigestBuilder();
  DigestBuilder(const DigestBuilder&) = delete;
  DigestBuilder& operator=(const DigestBuilder&) = delete;

  void AddBytes(std::span<const std::byte> bytes);
  // Eight bytes, little endian.
  void AddInt(int64_t value) {
    static_assert(std::endian::native == std::endian::little);
    if (used_ + sizeof(value) > buffer_.size()) Flush();
    std::memcpy(buffer_.data() + used_, &value, sizeof(value));
    used_ += sizeof(value);
  }
  // Each as AddInt: of any integer, enumerator or truth value.
  template <typename... Values>
  void AddInts(Values... values) {
    (AddInt(static_cast<int64_t>(values)), ...);
  }
  // The length and the bytes, so that neighbouring texts cannot run into each other.
  void AddText(absl::string_view text);
  void AddDigest(const Digest& digest);

  // Of everything added so far.
  Digest Finish();

 private:
  struct State;
  void Flush();

  std::unique_ptr<State> state_;
  std::array<std::byte, 4096> buffer_;
  size_t used_ = 0;
};

}  // namespace crossmesh
