#include "common/rpc/error_details.h"

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/cord.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <absl/strings/strip.h>

namespace crossmesh {
namespace {

constexpr absl::string_view kTypeUrl = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr const char* kDomain = "crossmesh";
// They travel in base64, beside the message: together within the limit of metadata.
constexpr size_t kBytesMax = 3 << 10;

using Member = std::pair<const char*, std::string ErrorDetails::*>;
constexpr std::array<Member, 3> kMembers = {Member{"object", &ErrorDetails::object},
                                            Member{"expected", &ErrorDetails::expected},
                                            Member{"found", &ErrorDetails::found}};

// Where `wanted` begins in `text`, outside of double quotes.
size_t FindUnquoted(absl::string_view text, absl::string_view wanted) {
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!quoted && absl::StartsWith(text.substr(i), wanted)) return i;
    if (quoted && text[i] == '\\') {
      ++i;  // what it escapes is not looked at
    } else if (text[i] == '"') {
      quoted = !quoted;
    }
  }
  return absl::string_view::npos;
}

// Takes what stands before `end` off the text, and `end` with it; all of it where there is none.
absl::string_view TakeUntil(absl::string_view end, absl::string_view& text) {
  const size_t at = FindUnquoted(text, end);
  const absl::string_view taken = text.substr(0, at);
  text.remove_prefix(at == absl::string_view::npos ? text.size() : at + end.size());
  return taken;
}

ErrorDetails DetailsOfMessage(absl::string_view message) {
  constexpr absl::string_view kExpected = "expected ";
  ErrorDetails details;
  while (!absl::StartsWith(message, kExpected)) {
    absl::string_view part = TakeUntil(": ", message);
    const bool has_more = !details.object.empty() && FindUnquoted(part, "; ") != part.npos;
    if (message.empty() || has_more) {
      if (!details.object.empty()) details.found = std::string(TakeUntil("; ", part));
      return details;
    }
    absl::StrAppend(&details.object, details.object.empty() ? "" : ": ", part);
  }
  message.remove_prefix(kExpected.size());
  absl::string_view said = TakeUntil("; ", message);
  details.expected = std::string(TakeUntil(", found", said));
  absl::ConsumePrefix(&said, ":");
  details.found = std::string(absl::StripAsciiWhitespace(said));
  return details;
}

std::optional<google::rpc::ErrorInfo> InfoInPayload(const absl::Status& status) {
  const auto payload = status.GetPayload(kTypeUrl);
  google::rpc::ErrorInfo info;
  if (!payload.has_value() || !info.ParseFromString(std::string(*payload))) return std::nullopt;
  return info;
}

std::optional<ErrorDetails> DetailsInPayload(const absl::Status& status) {
  const std::optional<google::rpc::ErrorInfo> info = InfoInPayload(status);
  if (!info.has_value()) return std::nullopt;
  ErrorDetails details;
  for (const auto& [key, member] : kMembers) {
    const auto found = info->metadata().find(key);
    if (found != info->metadata().end()) details.*member = found->second;
  }
  return details;
}

// Of the payload, else of the message.
google::rpc::ErrorInfo InfoOf(const absl::Status& status) {
  if (std::optional<google::rpc::ErrorInfo> info = InfoInPayload(status)) return *std::move(info);
  const ErrorDetails details = DetailsOfMessage(status.message());
  google::rpc::ErrorInfo info;
  info.set_reason(absl::StatusCodeToString(status.code()));
  info.set_domain(kDomain);
  for (const auto& [key, member] : kMembers) {
    if (!(details.*member).empty()) (*info.mutable_metadata())[key] = details.*member;
  }
  return info;
}

void SetInfo(const google::rpc::ErrorInfo& info, absl::Status& status) {
  status.SetPayload(kTypeUrl, absl::Cord(absl::string_view(info.SerializeAsString())));
}

}  // namespace

ErrorDetails DetailsOf(const absl::Status& status) {
  const std::optional<ErrorDetails> told = DetailsInPayload(status);
  return told.has_value() ? *told : DetailsOfMessage(status.message());
}

std::string ErrorReasonOf(const absl::Status& status) {
  const std::optional<google::rpc::ErrorInfo> info = InfoInPayload(status);
  return info.has_value() ? info->reason() : "";
}

void SetErrorReason(absl::Status& status, const std::string& reason) {
  google::rpc::ErrorInfo info = InfoOf(status);
  info.set_reason(reason);
  SetInfo(info, status);
}

std::optional<std::string> ErrorDetailOf(const absl::Status& status, const std::string& key) {
  const std::optional<google::rpc::ErrorInfo> info = InfoInPayload(status);
  if (!info.has_value()) return std::nullopt;
  const auto found = info->metadata().find(key);
  if (found == info->metadata().end()) return std::nullopt;
  return found->second;
}

void SetErrorDetail(absl::Status& status, const std::string& key, const std::string& value) {
  google::rpc::ErrorInfo info = InfoOf(status);
  (*info.mutable_metadata())[key] = value;
  SetInfo(info, status);
}

std::string EncodeDetails(const absl::Status& status) {
  const google::rpc::ErrorInfo info = InfoOf(status);
  if (info.metadata().empty()) return "";
  google::rpc::Status all;
  // Clients refuse details whose code and message are others than the call's.
  all.set_code(static_cast<int>(status.code()));
  all.set_message(std::string(status.message()));
  all.add_details()->PackFrom(info);
  std::string bytes = all.SerializeAsString();
  return bytes.size() <= kBytesMax ? bytes : "";
}

void DecodeDetails(const std::string& bytes, absl::Status& status) {
  google::rpc::Status all;
  if (!all.ParseFromString(bytes)) return;
  for (const google::protobuf::Any& detail : all.details()) {
    if (detail.type_url() == kTypeUrl) status.SetPayload(kTypeUrl, absl::Cord(detail.value()));
  }
}

}  // namespace crossmesh
