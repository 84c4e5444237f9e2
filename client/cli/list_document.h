#pragma once

#include "client/cli/cli.h"

#include <string>
#include <utility>

#include <nlohmann/json.hpp>

namespace crossmesh {

// {"meshes": [...]}: what a command that lists things answers.
template <typename Messages>
nlohmann::json ListDocument(const std::string& name, const Messages& messages) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& message : messages) list.push_back(ToJson(message));
  return {{name, std::move(list)}};
}

}  // namespace crossmesh
