#pragma once

#include "planner/parallelism/axis_rates.h"
#include "planner/parallelism/grid.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// The residual stream on its way from one grid to another, or its gradient.
struct JointMove {
  std::vector<std::string> steps;  // "slice", "all_to_all"; none where it lies the same
  double seconds = 0;
  int64_t bytes = 0;  // that the busiest device receives
};

// What moves, and where.
struct JointRequest {
  int64_t rows = 0;  // of all devices
  int64_t hidden = 0;
  int64_t item_bytes = 2;
  bool scattered = false;  // ActivationForm::kScattered
  // Of all grids of the stage, which lie on one mesh.
  std::span<const Grid> grids;
};

// Prices a message from one of the grids to another: the cheapest steps that redistribution finds,
// at the rates that an axis in their place has. InvalidArgument: as MeshOfGrids, and what the
// search finds. Cost: a search over layouts of two dimensions.
absl::StatusOr<JointMove> CostOfJoint(const JointRequest& request, const Grid& from, const Grid& to,
                                      const PositionRates& rates);

}  // namespace crossmesh
