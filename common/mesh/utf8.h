#pragma once

#include <string>

#include <absl/strings/string_view.h>

namespace crossmesh {

// Is `text` well-formed UTF-8: no overlong forms, no surrogates, nothing over U+10FFFF?
bool IsValidUtf8(absl::string_view text);

// `text` with "?" in place of each byte that is not part of well-formed UTF-8.
std::string ReplaceInvalidUtf8(absl::string_view text);

}  // namespace crossmesh
