#include "common/wire/object_name.h"

#include <algorithm>
#include <string>

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr size_t kNameBytesMax = 63;

bool IsNameByte(char c) {
  return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '.' || c == '_' || c == '-';
}

// Names come from users: what is shown of a bad one is printable and short.
std::string Shown(absl::string_view name) {
  return absl::StrCat("\"", absl::CHexEscape(name.substr(0, kNameBytesMax)), "\"",
                      name.size() > kNameBytesMax ? "..." : "");
}

}  // namespace

bool IsObjectName(absl::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax &&
         std::all_of(name.begin(), name.end(), IsNameByte);
}

absl::Status CheckObjectName(absl::string_view kind, absl::string_view name) {
  if (IsObjectName(name)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(kind, " name: expected [a-z0-9._-]{1,63}, found ", Shown(name)));
}

absl::Status CheckRequestId(absl::string_view id) {
  const auto is_id_byte = [](char c) { return IsNameByte(c) || absl::ascii_isupper(c); };
  if (!id.empty() && id.size() <= kNameBytesMax && std::all_of(id.begin(), id.end(), is_id_byte)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("request_id: expected [a-zA-Z0-9._-]{1,63}, found ", Shown(id)));
}

}  // namespace crossmesh
