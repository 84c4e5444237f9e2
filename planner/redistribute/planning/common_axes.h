#pragma once

#include "common/mesh/mesh.h"
#include "planner/redistribute/sub_axis.h"

#include <optional>
#include <vector>

namespace crossmesh {

// Axes by which two meshes over the same devices, in the same order, can both be described: each
// axis of either is some of them, one after the other.
//
// They are called as the axes that they are, of the source first; parts of axes by a number.
//
// Example: dp=8 and data=2,model=4 have the axes data=2 and model=4.
struct CommonAxes {
  std::vector<Axis> axes;
  // [axis of the mesh]: parts, whole axes of the above, major first.
  std::vector<std::vector<SubAxis>> of_source;
  std::vector<std::vector<SubAxis>> of_destination;
};

// Nothing when the meshes have other devices, or in another order, or axes whose sizes do not
// divide each other, as 2x3 and 3x2.
std::optional<CommonAxes> FindCommonAxes(const Mesh& source, const Mesh& destination);

}  // namespace crossmesh
