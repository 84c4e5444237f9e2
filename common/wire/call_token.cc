#include "common/wire/call_token.h"

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr size_t kTokenBytes = 16;

uint64_t BigEndian(absl::string_view bytes) {
  uint64_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<unsigned char>(byte);
  return value;
}

}  // namespace

absl::StatusOr<CallToken> ParseToken(absl::string_view bytes) {
  if (bytes.size() != kTokenBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("start.token: expected ", kTokenBytes, " bytes, found ", bytes.size()));
  }
  return CallToken{.high = BigEndian(bytes.substr(0, 8)), .low = BigEndian(bytes.substr(8))};
}

}  // namespace crossmesh
