#include "controller/dispatch/remaining_tensors.h"

#include "common/mesh/mesh.h"
#include "common/testing/status_matchers.h"

#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

Shape ShapeOf(std::vector<int64_t> lengths) { return *Shape::Create(lengths); }

// Two shapes on the same meshes: sources are cut in rows over two copies, destinations in columns
// within each of three replicas.
TensorTable Table() {
  TensorTable::Spec spec{
      .sources = {{*ParseMesh("copy=2,row=2 on a.0-1,b.0-1"), *ParseLayout("[row, -]")}},
      .destinations = {{*ParseMesh("replica=3,column=2 on c.0-1,d.0-1,e.0-1"),
                        *ParseLayout("[-, column]")}},
      .groups = {{.shape = ShapeOf({8, 4})}, {.shape = ShapeOf({16, 2})}},
      .group_of_tensor = {0, 1, 0},
      .replica_axes = {"replica"}};
  return *TensorTable::Create(std::move(spec));
}

// Every device that is left has the tiles that it had.
void ExpectSameTiles(const TensorTable& table, const TensorTable& remaining) {
  for (const Side side : {Side::kSource, Side::kDestination}) {
    for (int32_t group = 0; group < static_cast<int32_t>(table.groups().size()); ++group) {
      for (const DeviceRank rank : remaining.slots(side, remaining.placement_of(side, group))) {
        const DeviceRank before = *table.FindDevice(remaining.devices()[rank]);
        EXPECT_EQ(remaining.TileOf(side, group, rank), table.TileOf(side, group, before))
            << remaining.devices()[rank];
      }
    }
  }
}

TEST(RemainingTensorsTest, NothingIsLeftOutWhenNothingIsLost) {
  const TensorTable table = Table();
  ASSERT_OK_AND_ASSIGN(const TensorTable remaining, RemainingTensors(table, {0, 1, 2}, {}));
  EXPECT_EQ(remaining.digest(), table.digest());
}

TEST(RemainingTensorsTest, ReplicasAreRenumberedAndKeepTheirTiles) {
  const TensorTable table = Table();
  ASSERT_OK_AND_ASSIGN(const TensorTable remaining, RemainingTensors(table, {0, 2}, {{"d", 0}}));
  EXPECT_EQ(remaining.replicas(), 2);
  EXPECT_EQ(remaining.replica_of(*remaining.FindDevice({"c", 1})), 0);
  EXPECT_EQ(remaining.replica_of(*remaining.FindDevice({"e", 0})), 1);
  EXPECT_FALSE(remaining.FindDevice({"d", 1}).has_value());
  EXPECT_EQ(remaining.group_of_tensor(), table.group_of_tensor());
  ExpectSameTiles(table, remaining);
}

TEST(RemainingTensorsTest, LostSourcesDoNotCount) {
  const TensorTable table = Table();
  ASSERT_OK_AND_ASSIGN(const TensorTable remaining,
                       RemainingTensors(table, {0, 1, 2}, {{"a", 1}, {"b", 0}}));
  EXPECT_FALSE(remaining.FindDevice({"a", 1}).has_value());
  EXPECT_EQ(remaining.replicas(), 3);
  ExpectSameTiles(table, remaining);
}

TEST(RemainingTensorsTest, ALostDeviceOfAReplicaThatRemainsIsRefused) {
  EXPECT_THAT(RemainingTensors(Table(), {0, 1}, {{"d", 1}}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("d.1")));
}

TEST(RemainingTensorsTest, WithoutAnySourceThereIsNothingToPlan) {
  EXPECT_THAT(RemainingTensors(Table(), {0}, {{"a", 0}, {"a", 1}, {"b", 0}, {"b", 1}}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("all of its devices")));
}

}  // namespace
}  // namespace crossmesh
