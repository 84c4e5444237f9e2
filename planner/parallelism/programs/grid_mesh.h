#pragma once

#include "common/mesh/device.h"
#include "common/mesh/layout.h"
#include "common/mesh/mesh.h"
#include "planner/parallelism/grid.h"

#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// The mesh of a grid on these devices, with the axes data, z, r and c in that order, so that the
// neighbours of c are neighbours. InvalidArgument: other axes of more than one, or another count of
// devices; what Mesh::Create finds.
absl::StatusOr<Mesh> MeshOfGrid(const Grid& grid, std::span<const DeviceId> devices);

// The axes of a mesh on which several grids of as many devices lie, so that what one of them cuts
// can go to where another one wants it by collectives. An axis of it ends wherever an axis of any
// grid does, and is called by the devices inside it: c=2,r=4 and r=2,z=4 have
// "inner4=2,inner2=2,inner1=2". Of one grid those of MeshOfGrid. InvalidArgument: other axes of
// more than one; as CutsOf.
absl::StatusOr<std::vector<Axis>> AxesOfGrids(std::span<const Grid> grids);
// As MeshOfGrid.
absl::StatusOr<Mesh> MeshOfGrids(std::span<const Grid> grids, std::span<const DeviceId> devices);

// Of a grid on such a mesh, the axes of the mesh that each of its own is made of, major first.
using MeshAxes = PerAxis<std::vector<std::string>>;
MeshAxes AxesOnMesh(const Grid& grid, std::span<const Axis> axes);

// The residual stream between blocks: rows over data and z, and scattered ones over r as well,
// features over c.
Layout LayoutBetweenBlocks(const MeshAxes& axes, bool scattered);

}  // namespace crossmesh
