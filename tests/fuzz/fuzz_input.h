#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <absl/strings/string_view.h>

namespace crossmesh {

// What a target does with one input: each defines it.
void FuzzOne(const uint8_t* data, size_t size);

// The bytes of a fuzzer as a source of choices; zeros once they are used up. Thread-compatible.
class FuzzInput {
 public:
  explicit FuzzInput(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  uint8_t Byte() {
    if (bytes_.empty()) return 0;
    const uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }

  // Least significant byte first.
  uint64_t Number(int bytes) {
    uint64_t number = 0;
    for (int i = 0; i < bytes; ++i) number |= uint64_t{Byte()} << (8 * i);
    return number;
  }

 private:
  std::span<const uint8_t> bytes_;
};

// What a fuzzer gives, as text.
inline absl::string_view TextOf(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace crossmesh
