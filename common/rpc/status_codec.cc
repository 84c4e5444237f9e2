#include "common/rpc/status_codec.h"

#include "common/rpc/error_details.h"

#include <string>

#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

constexpr size_t kMessageBytesMax = 3 << 10;

// The longest start of `text` within the limit that does not end inside a UTF-8 character.
absl::string_view Cut(absl::string_view text) {
  if (text.size() <= kMessageBytesMax) return text;
  size_t end = kMessageBytesMax;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const absl::Status cut(status.code(), Cut(status.message()));
  // Both enumerations are the canonical numbers.
  return grpc::Status(static_cast<grpc::StatusCode>(cut.code()), std::string(cut.message()),
                      EncodeDetails(cut));
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const int code = status.error_code();
  const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  absl::Status decoded(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                       status.error_message());
  DecodeDetails(status.error_details(), decoded);
  return decoded;
}

}  // namespace crossmesh
