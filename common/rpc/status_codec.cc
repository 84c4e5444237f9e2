#include "common/rpc/status_codec.h"

#include "common/rpc/error_details.h"

#include <string>

#include <absl/strings/ascii.h>
#include <absl/strings/cord.h>
#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

constexpr size_t kSentBytesMax = 3 << 10;

// gRPC sends messages percent-encoded.
size_t SentBytes(char c) { return absl::ascii_isprint(c) && c != '%' ? 1 : 3; }

// The longest start of `text` within the limit that does not end inside a UTF-8 character.
absl::string_view Cut(absl::string_view text) {
  size_t end = 0;
  for (size_t sent = 0; end < text.size(); ++end) {
    sent += SentBytes(text[end]);
    if (sent > kSentBytesMax) break;
  }
  if (end == text.size()) return text;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  absl::Status cut(status.code(), Cut(status.message()));
  status.ForEachPayload(
      [&cut](absl::string_view url, const absl::Cord& payload) { cut.SetPayload(url, payload); });
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
