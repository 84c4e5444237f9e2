#include "worker/executor/wire_message.h"

#include "common/mesh/utf8.h"

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

std::string ToString(const OpeningPayload& opening) {
  return absl::StrCat("order ", opening.order.ToString(), ", chunks of ", opening.chunk_bytes,
                      " bytes, checksums ", opening.checksums != 0 ? "on" : "off");
}

size_t EncodeFailure(const absl::Status& status, std::span<std::byte, kFailureBytesMax> into) {
  into[0] = static_cast<std::byte>(status.code());
  const absl::string_view text = status.message().substr(0, kFailureBytesMax - 1);
  std::transform(text.begin(), text.end(), &into[1],
                 [](char byte) { return static_cast<std::byte>(byte); });
  return 1 + text.size();
}

absl::Status DecodeFailure(std::span<const std::byte> bytes) {
  if (bytes.empty()) return absl::UnknownError("a failure without a reason");
  const auto code = static_cast<absl::StatusCode>(bytes[0]);
  const absl::string_view text(reinterpret_cast<const char*>(bytes.data()) + 1, bytes.size() - 1);
  const bool known = code > absl::StatusCode::kOk && code <= absl::StatusCode::kUnauthenticated;
  // Cut in the middle of a character it would make the report that carries it unreadable.
  return {known ? code : absl::StatusCode::kUnknown, ReplaceInvalidUtf8(text)};
}

}  // namespace crossmesh
