#include "common/mesh/utf8.h"

#include <cstddef>
#include <cstdint>

namespace crossmesh {
namespace {

// Bytes of the sequence that begins with `lead`, and the smallest code point that needs so many.
struct Sequence {
  size_t bytes = 0;
  uint32_t least = 0;
  uint32_t bits = 0;  // of the lead byte
};

Sequence SequenceOf(unsigned char lead) {
  if (lead < 0x80) return {1, 0, lead};
  if ((lead & 0xe0) == 0xc0) return {2, 0x80, lead & 0x1fU};
  if ((lead & 0xf0) == 0xe0) return {3, 0x800, lead & 0x0fU};
  if ((lead & 0xf8) == 0xf0) return {4, 0x10000, lead & 0x07U};
  return {};
}

// Bytes of the character that `text` begins with; 0 when it begins with none.
size_t BytesOfFirst(absl::string_view text) {
  const Sequence sequence = SequenceOf(static_cast<unsigned char>(text[0]));
  if (sequence.bytes > text.size()) return 0;
  uint32_t code = sequence.bits;
  for (size_t i = 1; i < sequence.bytes; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte & 0x3fU);
  }
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  return code < sequence.least || code > 0x10ffff || surrogate ? 0 : sequence.bytes;
}

}  // namespace

bool IsValidUtf8(absl::string_view text) {
  while (!text.empty()) {
    const size_t bytes = BytesOfFirst(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string ReplaceInvalidUtf8(absl::string_view text) {
  std::string replaced;
  while (!text.empty()) {
    const size_t bytes = BytesOfFirst(text);
    if (bytes == 0) {
      replaced += '?';
      text.remove_prefix(1);
    } else {
      replaced.append(text.data(), bytes);
      text.remove_prefix(bytes);
    }
  }
  return replaced;
}

}  // namespace crossmesh
