#include "common/base/digest.h"

#include <absl/strings/str_format.h>
#include <xxhash.h>

namespace crossmesh {
namespace {

std::optional<uint64_t> ParseHex64(absl::string_view digits) {
  uint64_t value = 0;
  for (const char c : digits) {
    uint64_t digit = 0;
    if (c >= '0' && c <= '9') {
      digit = static_cast<uint64_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      digit = static_cast<uint64_t>(c - 'a') + 10;
    } else {
      return std::nullopt;
    }
    value = (value << 4) | digit;
  }
  return value;
}

}  // namespace

Digest Digest::Of(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {.high = hash.high64, .low = hash.low64};
}

Digest Digest::Of(absl::string_view text) {
  return Of(std::as_bytes(std::span(text.data(), text.size())));
}

std::optional<Digest> Digest::Parse(absl::string_view hex) {
  if (hex.size() != 32) return std::nullopt;
  const std::optional<uint64_t> high = ParseHex64(hex.substr(0, 16));
  const std::optional<uint64_t> low = ParseHex64(hex.substr(16));
  if (!high.has_value() || !low.has_value()) return std::nullopt;
  return Digest{.high = *high, .low = *low};
}

std::string Digest::ToString() const { return absl::StrFormat("%016x%016x", high, low); }

}  // namespace crossmesh
