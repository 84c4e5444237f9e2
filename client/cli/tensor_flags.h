#pragma once

#include "common/mesh/manifest.h"
#include "crossmesh/v1/tensor.pb.h"

#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// The manifest of a manifest file, or of a safetensors file or folder. Errors name the path.
absl::StatusOr<Manifest> ReadManifest(const std::string& path);

// The rules of a rules file, as the API takes them. InvalidArgument: what LayoutRules::Parse finds,
// with the path.
absl::StatusOr<std::vector<v1::LayoutRule>> ReadRules(const std::string& path);

// One rule for every tensor. InvalidArgument: what LayoutRules::Parse finds.
absl::StatusOr<v1::LayoutRule> RuleForAll(absl::string_view layout);

// Is `text` the name of something registered, rather than a mesh in text form or a path?
bool IsRegisteredName(absl::string_view text);

}  // namespace crossmesh
