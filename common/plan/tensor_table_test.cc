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
  EXPECT_EQ(tensors.FindDevice({"z", 0}), std::nullopt);
}

TEST(TensorTableTest, GivesTilesAndBytesByDevice) {
  TensorTable::Spec spec = TableSpecOf({Simple()});
  spec.group_of_tensor = {0, -1, 0};
  ASSERT_OK_AND_ASSIGN(const TensorTable tensors, TensorTable::Create(spec));
  EXPECT_EQ(ToString(tensors.TileOf(Side::kSource, 0, 0)[0]), "[4:8, 0:6]");
  EXPECT_EQ(ToString(tensors.TileOf(Side::kDestination, 0, 0)[0]), "[0:8, 0:3]");
  EXPECT_TRUE(tensors.TileOf(Side::kSource, 0, 1).empty());
  EXPECT_TRUE(tensors.TileOf(Side::kSource, 0, 4).empty());
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

TEST(TensorTableTest, CountsReplicasByTheFirstAxisFirst) {
  const TensorTable rows = TableOf({Simple()}, {"r", "y"});
  EXPECT_EQ(rows.replicas(), 4);
  const TensorTable columns = TableOf({Simple()}, {"y", "r"});
  std::vector<int32_t> by_rows, by_columns;
  for (const DeviceRank device : rows.slots(Side::kDestination, 0)) {
    by_rows.push_back(rows.replica_of(device));
    by_columns.push_back(columns.replica_of(device));
  }
  EXPECT_THAT(by_rows, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(by_columns, ElementsAre(0, 2, 1, 3));
}

TEST(TensorTableTest, ADeviceMayBeInOneReplicaOfSeveralMeshes) {
  const TensorTable tensors = TableOf({Simple(), Simple()}, {"r"});
  EXPECT_EQ(tensors.replica_of(3), 0);
  EXPECT_EQ(tensors.replica_of(0), 1);
}

TEST(TensorTableTest, RefusesAMeshWithAnotherNumberOfReplicas) {
  TensorText other = Simple();
  other.destination_mesh = "r=4,y=1 on c.0-1,a.0,b.0";
  TensorTable::Spec spec = TableSpecOf({Simple(), other});
  spec.replica_axes = {"r"};
  EXPECT_THAT(TensorTable::Create(spec), IsRefused("expected 2 as on the others, found 4"));
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
  spec = TableSpecOf({Simple()});
  spec.groups[0].source = 1;
  EXPECT_THAT(TensorTable::Create(spec),
              IsRefused("source placement of tensor group 0: expected an index from 0 to below 1, "
                        "found 1"));
  spec = TableSpecOf({Simple()});
  spec.group_of_tensor = {-2};
  EXPECT_THAT(TensorTable::Create(spec),
              IsRefused("group of tensor 0: expected an index from 0 to below 1, found -2"));
}

TEST(TensorTableTest, RefusesLayoutsThatDoNotFit) {
  TensorTable::Spec spec = TableSpecOf({Simple()});
  spec.sources[0].layout = *ParseLayout("[w, -]");
  EXPECT_THAT(TensorTable::Create(spec), StatusIs(absl::StatusCode::kInvalidArgument));
  spec.destinations[0].layout = *ParseLayout("[v, -]");
  EXPECT_THAT(TensorTable::Create(spec), IsRefused("[w, -]"));
  spec.sources[0] = TableSpecOf({Simple()}).sources[0];
  EXPECT_THAT(TensorTable::Create(spec), IsRefused("[v, -]"));
}

TEST(TensorTableTest, RefusesMoreBytesThanCanBeCounted) {
  TensorText text = Simple();
  text.shape = "[16777216, 16777216]";
  TensorTable::Spec spec = TableSpecOf({text});
  spec.group_of_tensor.assign(10, 0);
  EXPECT_THAT(TensorTable::Create(spec), IsRefused("bytes"));
}

// 2^51 bytes.
TensorText Large(absl::string_view source_mesh) {
  TensorText text =
      TensorOf("[1099511627776, 256]: x=1 on a.0 [-, -] -> y=1 on z.0 [-, -]", DataType::kF64);
  text.source_mesh = std::string(source_mesh);
  return text;
}

TEST(TensorTableTest, RefusesAByteMoreThanTheLimit) {
  TensorTable::Spec spec = TableSpecOf(
      {Large("x=1 on a.0"), TensorOf("[1]: x=1 on a.0 [-] -> y=1 on z.0 [-]", DataType::kU8)});
  spec.group_of_tensor = {0, 0, 0, 0};
  EXPECT_OK(TensorTable::Create(spec));
  spec.group_of_tensor.push_back(1);
  EXPECT_THAT(TensorTable::Create(spec),
              IsRefused("tensors 0 to 4: expected at most 9007199254740992 bytes"));
}

TEST(TensorTableTest, RefusesMoreBytesInAllSlotsThanCanBeCounted) {
  const auto create = [](const std::vector<TensorText>& tensors) {
    return TensorTable::Create(TableSpecOf(tensors));
  };
  // 1,024 slots of one tensor have the bytes of the limit; as many of two together have them, too.
  EXPECT_OK(create({Large("x=1023 on a.0-1022")}));
  EXPECT_THAT(create({Large("x=1024 on a.0-1023")}),
              IsRefused("tensors 0 to 0: expected at most 9007199254740992 bytes, and "
                        "2305843009213693952 with a copy in every slot, found more"));
  const TensorText half = Large("x=511 on a.0-510");
  EXPECT_OK(create({half, half}));
  EXPECT_THAT(create({half, Large("x=512 on a.0-511")}), IsRefused("tensors 0 to 1"));
  // 2^63, and 2^63 less 2^51: the one overflows by itself, the other with what came before it.
  EXPECT_THAT(create({Large("x=4095 on a.0-1023,b.0-1023,c.0-1023,d.0-1022")}),
              IsRefused("tensors 0 to 0"));
  EXPECT_THAT(create({half, Large("x=4094 on a.0-1023,b.0-1023,c.0-1023,d.0-1021")}),
              IsRefused("tensors 0 to 1"));
}

// It is compared by programs of other builds: what changes it changes its first text as well.
TEST(TensorTableTest, TheDigestOfATableStaysWhatItIs) {
  TensorText other = Simple();
  other.shape = "[6, 4]";
  other.type = DataType::kI32;
  TensorTable::Spec spec = TableSpecOf({Simple(), other});
  spec.group_of_tensor = {1, -1, 0, 1};
  spec.manifest = Digest::Of("manifest");
  spec.replica_axes = {"r"};
  ASSERT_OK_AND_ASSIGN(const TensorTable plain, TensorTable::Create(spec));
  EXPECT_EQ(plain.digest().ToString(), "f1bf903924faf96c781c1d175ddd407e");
  // Names are for messages alone.
  spec.names = {"one", "two"};
  EXPECT_EQ(TensorTable::Create(spec)->digest(), plain.digest());
  const TensorTable converted =
      TableOf({Simple(), TensorOf("[256, 128]: x=2 on a.0-1 [x, -] -> y=1 on z.0 [-, -]",
                                  DataType::kBF16, DataType::kF8E4M3)});
  EXPECT_EQ(converted.digest().ToString(), "e620254a9817acab1d3a45beaef48e4a");
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
