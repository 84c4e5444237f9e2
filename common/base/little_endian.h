#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <absl/strings/string_view.h>

namespace crossmesh {

// The low `count` bytes of a number, at most eight, the least significant first.
inline std::string ToLittleEndian(uint64_t number, size_t count) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) bytes += static_cast<char>(number >> (8 * i));
  return bytes;
}

// The number of at most eight such bytes.
inline uint64_t FromLittleEndian(absl::string_view bytes) {
  uint64_t number = 0;
  for (size_t i = bytes.size(); i-- > 0;) {
    number = number << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return number;
}

}  // namespace crossmesh
