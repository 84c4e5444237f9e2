#include "planner/parallelism/programs/grid_mesh.h"

#include "common/base/status_macros.h"
#include "planner/parallelism/layer_grids.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// The axes that programs know, the nearest neighbours last.
constexpr std::array<GridAxis, 4> kMeshAxes = {GridAxis::kData, GridAxis::kZ, GridAxis::kR,
                                               GridAxis::kC};

absl::Status CheckAxes(const Grid& grid) {
  const int64_t devices = grid.data() * grid.z() * grid.r() * grid.c();
  if (devices == grid.devices()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("program of a grid: expected a grid of c, r, z and data for each stage, found ",
                   ToString(grid)));
}

}  // namespace

absl::StatusOr<std::vector<Axis>> AxesOfGrids(std::span<const Grid> grids) {
  for (const Grid& grid : grids) RETURN_IF_ERROR(CheckAxes(grid));
  std::vector<Axis> axes;
  if (grids.size() == 1) {
    for (const GridAxis axis : kMeshAxes) {
      axes.push_back({.name = std::string(GridAxisName(axis)), .size = grids.front()[axis]});
    }
    return axes;
  }
  ASSIGN_OR_RETURN(const std::vector<int64_t> cuts, CutsOf(grids));
  for (size_t cut = cuts.size() - 1; cut > 0; --cut) {
    axes.push_back(
        {.name = absl::StrCat("inner", cuts[cut - 1]), .size = cuts[cut] / cuts[cut - 1]});
  }
  return axes;
}

absl::StatusOr<Mesh> MeshOfGrid(const Grid& grid, std::span<const DeviceId> devices) {
  return MeshOfGrids(std::span(&grid, 1), devices);
}

absl::StatusOr<Mesh> MeshOfGrids(std::span<const Grid> grids, std::span<const DeviceId> devices) {
  ASSIGN_OR_RETURN(std::vector<Axis> axes, AxesOfGrids(grids));
  return Mesh::Create(std::move(axes), {devices.begin(), devices.end()});
}

MeshAxes AxesOnMesh(const Grid& grid, std::span<const Axis> axes) {
  MeshAxes on_mesh;
  if (std::ranges::any_of(axes, [](const Axis& axis) { return axis.name == "c"; })) {
    for (const GridAxis axis : kMeshAxes) on_mesh[axis] = {std::string(GridAxisName(axis))};
    return on_mesh;
  }
  const PerAxis<int64_t> inner = InnerSizes(grid, kGridOrder);
  int64_t inside = grid.devices();
  for (const Axis& of_mesh : axes) {
    inside /= of_mesh.size;
    for (const GridAxis axis : kMeshAxes) {
      if (inside >= inner[axis] && inside < inner[axis] * grid[axis]) {
        on_mesh[axis].push_back(of_mesh.name);
      }
    }
  }
  return on_mesh;
}

Layout LayoutBetweenBlocks(const MeshAxes& axes, bool scattered) {
  std::vector<std::string> rows;
  for (const GridAxis axis : {GridAxis::kData, GridAxis::kZ, GridAxis::kR}) {
    if (axis == GridAxis::kR && !scattered) continue;
    rows.insert(rows.end(), axes[axis].begin(), axes[axis].end());
  }
  return Layout(AxisLayout{.dimensions = {std::move(rows), axes[GridAxis::kC]}});
}

}  // namespace crossmesh
