#include "controller/catalog/names.h"

#include <algorithm>

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr size_t kNameBytesMax = 63;

bool IsPlain(char c) {
  return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '.' || c == '_' || c == '-';
}

absl::Status Refuse(absl::string_view kind, absl::string_view text, absl::string_view pattern) {
  return absl::InvalidArgumentError(absl::StrCat(kind, ": expected ", pattern, ", found \"",
                                                 absl::CHexEscape(text.substr(0, 80)), "\""));
}

}  // namespace

absl::Status CheckObjectName(absl::string_view kind, absl::string_view name) {
  if (!name.empty() && name.size() <= kNameBytesMax &&
      std::all_of(name.begin(), name.end(), IsPlain)) {
    return absl::OkStatus();
  }
  return Refuse(absl::StrCat(kind, " name"), name, "[a-z0-9._-]{1,63}");
}

absl::Status CheckRequestId(absl::string_view id) {
  const auto allowed = [](char c) { return IsPlain(c) || absl::ascii_isupper(c); };
  if (!id.empty() && id.size() <= kNameBytesMax && std::all_of(id.begin(), id.end(), allowed)) {
    return absl::OkStatus();
  }
  return Refuse("request_id", id, "[a-zA-Z0-9._-]{1,63}");
}

}  // namespace crossmesh
