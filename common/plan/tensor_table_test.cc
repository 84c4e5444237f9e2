#include "common/plan/tensor_table.h"

#include "common/plan/testing/for_each_seed.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/tables.h"
#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TensorText Simple() {
  return TensorOf("[8, 6]: x=2 on b.1,a.0 [x, -] -> r=2,y=2 on c.0-1,a.0,b.0 [-, y]");
}

TEST(TensorTableTest, RanksAllDevicesByHostAndIndex) {
  const TensorTable tensors = TableOf({Simple()});
  std::vector<std::string> names;
  for (const DeviceId& device : tensors.devices()) names.push_back(ToString(device));
  EXPECT_THAT(names, ElementsAre("a.0", "b.0", "b.1", "c.0", "c.1"));
  EXPECT_THAT(tensors.hosts(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(tensors.host_of(2), 1);
  EXPECT_THAT(tensors.slots(Side::kSource, 0), ElementsAre(2, 0));
  EXPECT_THAT(tensors.slots(Side::kDestination, 0), ElementsAre(3, 4, 0, 1));
  EXPECT_EQ(tensors.FindDevice({"b", 1}), 2);
  EXPECT_EQ(tensors.FindDevice({"b", 2}), std::nullopt);
}

TEST(TensorTableTest, GivesTilesAndBytesByDevice) {
  TensorTable::Spec spec = TableSpecOf({Simple()});
  spec.group_of_tensor = {0, -1, 0};
  ASSERT_OK_AND_ASSIGN(const TensorTable tensors, TensorTable::Create(spec));
  EXPECT_EQ(ToString(tensors.TileOf(Side::kSource, 0, 0)[0]), "[4:8, 0:6]");
  EXPECT_EQ(ToString(tensors.TileOf(Side::kDestination, 0, 0)[0]), "[0:8, 0:3]");
  EXPECT_TRUE(tensors.TileOf(Side::kSource, 0, 1).empty());
  EXPECT_EQ(tensors.BytesOf(Side::kSource, 0), 2 * 4 * 6 * 4);
  EXPECT_EQ(tensors.BytesOf(Side::kSource, 1), 0);
}

TEST(TensorTableTest, EachSideHasItsType) {
  TensorText text = Simple();
  text.sent_as = DataType::kBF16;
  const TensorTable tensors = TableOf({Simple(), text});
  EXPECT_EQ(tensors.TypeOf(Side::kSource, 1), DataType::kF32);
  EXPECT_EQ(tensors.TypeOf(Side::kDestination, 1), DataType::kBF16);
  EXPECT_THAT(tensors.conversions(), ElementsAre(Conversion{DataType::kF32, DataType::kBF16}));
  EXPECT_EQ(tensors.conversion_of(0), kNoConversion);
  EXPECT_EQ(tensors.conversion_of(1), 0);
  EXPECT_EQ(tensors.BytesOf(Side::kSource, 0), 4 * 6 * 4 + 4 * 6 * 4);
  EXPECT_EQ(tensors.BytesOf(Side::kDestination, 0), 8 * 3 * 4 + 8 * 3 * 2);
}

TEST(TensorTableTest, RefusesWhatCannotBeConverted) {
  TensorText text = Simple();
  text.sent_as = DataType::kI32;
  EXPECT_THAT(TensorTable::Create(TableSpecOf({Simple(), text})),
              IsRefused("tensor group 1: F32 cannot be sent as I32"));
}

TEST(TensorTableTest, TilesAreThoseOfTheLayouts) {
  ForEachSeed(300, [&](RandomSource& random, uint64_t seed) {
    const TensorTable tensors = RandomTensorTable(random);
    for (int32_t g = 0; g < static_cast<int32_t>(tensors.groups().size()); ++g) {
      for (const Side side : {Side::kSource, Side::kDestination}) {
        const Placement& placement = tensors.PlacementOf(side, g);
        const auto tiles = placement.layout.Tiles(placement.mesh, tensors.groups()[g].shape);
        const auto& slots = tensors.slots(side, tensors.placement_of(side, g));
        for (size_t s = 0; s < slots.size(); ++s) {
          ASSERT_EQ(tensors.TileOf(side, g, slots[s]), tiles[s]) << "seed " << seed;
        }
      }
    }
  });
}

TEST(TensorTableTest, CountsReplicasOverTheReplicaAxes) {
  const TensorTable whole = TableOf({Simple()});
  EXPECT_EQ(whole.replicas(), 1);
  EXPECT_EQ(whole.replica_of(3), 0);
  const TensorTable tensors = TableOf({Simple()}, {"r"});
  EXPECT_EQ(tensors.replicas(), 2);
  EXPECT_EQ(tensors.replica_of(3), 0);
  EXPECT_EQ(tensors.replica_of(0), 1);
  EXPECT_EQ(tensors.replica_of(2), -1);
}

TEST(TensorTableTest, RefusesReplicaAxesThatAMeshDoesNotHave) {
  TensorTable::Spec spec = TableSpecOf({Simple()});
  spec.replica_axes = {"z"};
  EXPECT_THAT(TensorTable::Create(spec), IsRefused("\"z\""));
  spec.replica_axes = {"r", "r"};
  EXPECT_THAT(TensorTable::Create(spec), IsRefused("found twice"));
}

TEST(TensorTableTest, RefusesADeviceInTwoReplicas) {
  TensorText other = Simple();
  other.destination_mesh = "r=2,y=2 on a.0,b.0,c.0-1";
  TensorTable::Spec spec = TableSpecOf({Simple(), other});
  spec.replica_axes = {"r"};
  EXPECT_THAT(TensorTable::Create(spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("a.0"), HasSubstr("one replica"))));
}

TEST(TensorTableTest, RefusesIndicesOutOfRange) {
  TensorTable::Spec spec = TableSpecOf({Simple()});
  spec.group_of_tensor = {1};
  EXPECT_THAT(TensorTable::Create(spec), IsRefused("group of tensor 0"));
  spec = TableSpecOf({Simple()});
  spec.groups[0].destination = -1;
  EXPECT_THAT(TensorTable::Create(spec), IsRefused("destination placement"));
}

TEST(TensorTableTest, RefusesLayoutsThatDoNotFit) {
  TensorTable::Spec spec = TableSpecOf({Simple()});
  spec.sources[0].layout = *ParseLayout("[w, -]");
  EXPECT_THAT(TensorTable::Create(spec), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(TensorTableTest, RefusesMoreBytesThanCanBeCounted) {
  TensorText text = Simple();
  text.shape = "[16777216, 16777216]";
  TensorTable::Spec spec = TableSpecOf({text});
  spec.group_of_tensor.assign(10, 0);
  EXPECT_THAT(TensorTable::Create(spec), IsRefused("bytes"));
}

TEST(TensorTableTest, TheDigestTellsTablesApart) {
  const TensorTable::Spec spec = TableSpecOf({Simple()});
  const Digest digest = TensorTable::Create(spec)->digest();
  EXPECT_EQ(TensorTable::Create(spec)->digest(), digest);
  TensorTable::Spec other = spec;
  other.group_of_tensor = {0, 0};
  EXPECT_NE(TensorTable::Create(other)->digest(), digest);
  other = spec;
  other.sources[0].layout = *ParseLayout("[-, x]");
  EXPECT_NE(TensorTable::Create(other)->digest(), digest);
  other = spec;
  other.groups[0].type = DataType::kI32;
  EXPECT_NE(TensorTable::Create(other)->digest(), digest);
  other = spec;
  other.groups[0].sent_as = DataType::kF16;
  EXPECT_NE(TensorTable::Create(other)->digest(), digest);
  TensorTable::Spec third = other;
  third.groups[0].sent_as = DataType::kBF16;
  EXPECT_NE(TensorTable::Create(third)->digest(), TensorTable::Create(other)->digest());
}

}  // namespace
}  // namespace crossmesh
