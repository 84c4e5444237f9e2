#pragma once

#include <string>

#include <absl/status/status.h>
#include <nlohmann/json_fwd.hpp>

namespace crossmesh {

class GridFlags;
struct GridRequest;

// A grid, by its text, of what was asked for.
struct GridOfRequest {
  const GridRequest& request;
  const std::string& grid;
};

// Adds to what is said of a grid what its program is predicted to take on the described devices,
// layer by layer. InvalidArgument: no devices were described.
absl::Status AddByLayer(const GridFlags& flags, const GridOfRequest& of, nlohmann::json& document,
                        std::string& text);

}  // namespace crossmesh
