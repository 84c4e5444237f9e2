#pragma once

#include "crossmesh/v1/tensor.pb.h"

#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// The rules of a text, one of each line, as the API has them. InvalidArgument: what
// LayoutRules::Parse refuses.
absl::StatusOr<std::vector<v1::LayoutRule>> SplitRules(absl::string_view text);

}  // namespace crossmesh
