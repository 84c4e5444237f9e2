#pragma once

#include "client/cli/cli.h"

#include <cstdint>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {

// Of a list that is long, unless --count says more.
inline constexpr int64_t kListedDefault = 20;

// InvalidArgument: --count asks for less than one.
inline absl::Status CheckCount(int64_t count) {
  if (count >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--count: expected at least 1, found ", count));
}

// {"meshes": [...]}: what a command that lists things answers.
template <typename Messages>
nlohmann::json ListDocument(const std::string& name, const Messages& messages) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& message : messages) list.push_back(ToJson(message));
  return {{name, std::move(list)}};
}

}  // namespace crossmesh
