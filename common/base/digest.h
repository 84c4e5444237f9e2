#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <utility>

#include <absl/strings/string_view.h>

namespace crossmesh {

// 128 bits of XXH3: tells contents apart by chance, not against an attacker. Immutable.
struct Digest {
  uint64_t high = 0;
  uint64_t low = 0;

  static Digest Of(std::span<const std::byte> bytes);
  static Digest Of(absl::string_view text);

  // The inverse of ToString; nothing for any other text.
  static std::optional<Digest> Parse(absl::string_view hex);

  // 32 lower-case hexadecimal digits.
  std::string ToString() const;

  friend auto operator<=>(const Digest&, const Digest&) = default;

  friend std::ostream& operator<<(std::ostream& out, const Digest& digest) {
    return out << digest.ToString();
  }

  template <typename H>
  friend H AbslHashValue(H state, const Digest& digest) {
    return H::combine(std::move(state), digest.high, digest.low);
  }
};

}  // namespace crossmesh
