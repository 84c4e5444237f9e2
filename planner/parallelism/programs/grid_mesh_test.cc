#include "planner/parallelism/programs/grid_mesh.h"

#include "planner/parallelism/layer_grids.h"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<DeviceId> MeshDevices(int64_t count) {
  return *ParseDevices(absl::StrCat("a.0-", count - 1));
}

TEST(GridMeshTest, OneGridHasItsOwnMesh) {
  const std::vector<Grid> grids = {*ParseGrid("r=2,z=4")};
  const Mesh mesh = *MeshOfGrids(grids, MeshDevices(8));
  EXPECT_EQ(ToString(mesh), "data=1,z=4,r=2,c=1 on a.0-7");
  EXPECT_THAT(AxesOnMesh(grids[0], mesh.axes())[GridAxis::kC], ElementsAre("c"));
}

TEST(GridMeshTest, AnAxisEndsWhereOneOfAnyGridDoes) {
  const std::vector<Grid> grids = {*ParseGrid("c=2,r=4"), *ParseGrid("r=4,z=2")};
  const Mesh mesh = *MeshOfGrids(grids, MeshDevices(8));
  EXPECT_EQ(ToString(mesh), "inner4=2,inner2=2,inner1=2 on a.0-7");
  const MeshAxes first = AxesOnMesh(grids[0], mesh.axes());
  EXPECT_THAT(first[GridAxis::kC], ElementsAre("inner1"));
  EXPECT_THAT(first[GridAxis::kR], ElementsAre("inner4", "inner2"));
  EXPECT_THAT(first[GridAxis::kZ], IsEmpty());
  EXPECT_THAT(AxesOnMesh(grids[1], mesh.axes())[GridAxis::kR], ElementsAre("inner2", "inner1"));
}

// Whatever the grids: a device's place on an axis is that on the axes that it is made of.
TEST(GridMeshTest, PlacesOnAGridArePlacesOnTheMesh) {
  const uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::vector<Grid> grids(2 + random() % 2);
    for (Grid& grid : grids) {
      for (const int64_t prime : {2, 2, 2, 3}) {
        constexpr GridAxis kAxes[] = {GridAxis::kC, GridAxis::kR, GridAxis::kZ, GridAxis::kData};
        grid[kAxes[random() % 4]] *= prime;
      }
    }
    const absl::StatusOr<Mesh> mesh = MeshOfGrids(grids, MeshDevices(24));
    if (!mesh.ok()) continue;  // they cut across each other
    if (mesh->FindAxis("c").has_value()) continue;
    for (const Grid& grid : grids) {
      const PerAxis<int64_t> inner = InnerSizes(grid, kGridOrder);
      const MeshAxes axes = AxesOnMesh(grid, mesh->axes());
      for (const GridAxis axis : kGridAxes) {
        for (int64_t slot = 0; slot < 24; ++slot) {
          int64_t place = 0;
          for (const std::string& name : axes[axis]) {
            const int found = *mesh->FindAxis(name);
            place = place * mesh->axes()[found].size + mesh->Coordinate(slot, found);
          }
          EXPECT_EQ(place, slot / inner[axis] % grid[axis]) << grid << " " << GridAxisName(axis);
        }
      }
    }
  }
}

}  // namespace
}  // namespace crossmesh
