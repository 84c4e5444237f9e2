#include "common/plan/slicing.h"

#include "common/plan/packed_segments.h"
#include "common/plan/placed_tiles.h"
#include "common/plan/testing/for_each_seed.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"

#include <algorithm>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(SlicingTest, MergesTheCutsOfBothSides) {
  const TensorTable tensors =
      TableOf({TensorOf("[10]: x=2 on a.0-1 [x] -> y=3 on b.0-2 [y] chunk")});
  ASSERT_OK_AND_ASSIGN(const Slicing slicing, Slicing::Create(tensors));
  const GroupGrid& grid = slicing.grid(0);
  EXPECT_THAT(grid.cuts, ElementsAre(ElementsAre(0, 4, 5, 8, 10)));
  EXPECT_THAT(grid.class_of_cell, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(grid.bytes, ElementsAre(16, 4, 12, 8));
  EXPECT_THAT(slicing.holders(1), ElementsAre(0));
  EXPECT_THAT(slicing.receivers(1), ElementsAre(3));
  EXPECT_THAT(slicing.receivers(2), ElementsAre(3));
  EXPECT_THAT(slicing.receivers(3), ElementsAre(4));
}

TEST(SlicingTest, TensorsOfOneClassArePackedTogether) {
  TensorTable::Spec spec =
      TableSpecOf({TensorOf("[4, 3]: x=2 on a.0-1 [x, -] -> y=2 on b.0-1 [y, -]")});
  spec.group_of_tensor = {0, -1, 0};
  ASSERT_OK_AND_ASSIGN(const TensorTable tensors, TensorTable::Create(spec));
  ASSERT_OK_AND_ASSIGN(const Slicing slicing, Slicing::Create(tensors));
  ASSERT_EQ(slicing.classes().size(), 2u);
  EXPECT_EQ(slicing.classes()[0].bytes, 2 * 2 * 3 * 4);
}

TEST(SlicingTest, TensorsThatAreConvertedOtherwiseAreOtherClasses) {
  const TensorText plain = TensorOf("[4]: x=2 on a.0-1 [x] -> y=1 on b.0 [-]");
  TensorText as_half = plain;
  as_half.sent_as = DataType::kF16;
  TensorText from_half = as_half;
  from_half.type = DataType::kBF16;
  const TensorTable tensors = TableOf({plain, as_half, from_half, as_half, plain});
  ASSERT_OK_AND_ASSIGN(const Slicing slicing, Slicing::Create(tensors));
  ASSERT_EQ(slicing.classes().size(), 6u);
  EXPECT_THAT(slicing.grid(0).class_of_cell, ElementsAre(0, 1));
  EXPECT_THAT(slicing.grid(1).class_of_cell, ElementsAre(2, 3));
  EXPECT_THAT(slicing.grid(2).class_of_cell, ElementsAre(4, 5));
  EXPECT_THAT(slicing.grid(3).class_of_cell, ElementsAre(2, 3));
  EXPECT_THAT(slicing.grid(4).class_of_cell, ElementsAre(0, 1));
  // Two tensors of two elements each, as they are at the destination.
  EXPECT_EQ(slicing.classes()[0].bytes, 2 * 2 * 4);
  EXPECT_EQ(slicing.classes()[2].bytes, 2 * 2 * 2);
  const std::vector<DeviceRank> a0 = {0};
  const std::vector<DeviceRank> b0 = {2};
  EXPECT_EQ(slicing.Find(a0, b0), 0);
  EXPECT_EQ(slicing.Find(a0, b0, 0), 2);
  EXPECT_EQ(slicing.Find(a0, b0, 1), 4);
}

TEST(SlicingTest, ReplicasAreOneSet) {
  const TensorTable tensors = TableOf({TensorOf("[4]: x=2,y=2 on a.0-3 [x] -> x=3 on b.0-2 [-]")});
  ASSERT_OK_AND_ASSIGN(const Slicing slicing, Slicing::Create(tensors));
  ASSERT_EQ(slicing.classes().size(), 2u);
  EXPECT_THAT(slicing.holders(1), ElementsAre(2, 3));
  EXPECT_THAT(slicing.receivers(1), ElementsAre(4, 5, 6));
  EXPECT_EQ(slicing.device_sets(), 3);
}

TEST(SlicingTest, ExplicitTilesMayOverlapAndLeaveHolesAtTheDestination) {
  const TensorTable tensors = TableOf(
      {TensorOf("[4, 4]: x=2 on a.0-1 {[0:3, 0:4]; [2:4, 0:4]} -> x=1 on b.0 {[1:4, 0:2]}")});
  ASSERT_OK_AND_ASSIGN(const Slicing slicing, Slicing::Create(tensors));
  EXPECT_THAT(slicing.grid(0).cuts, ElementsAre(ElementsAre(0, 1, 2, 3, 4), ElementsAre(0, 2, 4)));
  EXPECT_THAT(slicing.grid(0).class_of_cell,
              ElementsAre(kNoClass, kNoClass, 0, kNoClass, 1, kNoClass, 2, kNoClass));
  EXPECT_THAT(slicing.holders(1), ElementsAre(0, 1));
}

TEST(SlicingTest, NeededBoxWithoutHolderIsNamed) {
  const TensorTable tensors = TableOf({TensorOf("[4]: x=1 on a.0 {[0:3]} -> x=1 on b.7 [-]")});
  EXPECT_THAT(Slicing::Create(tensors),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("[3:4]"), HasSubstr("group 0"), HasSubstr("b.7"))));
}

TEST(SlicingTest, ANeededBoxWithoutHolderIsNamedByTheCutsOfAllDimensions) {
  // The second of three planes, its first row, from the fourth column on.
  const TensorTable tensors =
      TableOf({TensorOf("[3, 2, 5]: x=1 on a.0 {[0:1, 0:2, 0:5] [1:3, 1:2, 0:5] [1:2, 0:1, 0:3]} "
                        "-> y=3,z=1 on b.0-2 [y, -, -]")});
  EXPECT_THAT(Slicing::Create(tensors),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "box [1:2, 0:1, 3:5] of tensor group 0 of shape [3, 2, 5], needed by device "
                       "b.1: expected a source slot that holds it, found none"));
}

TEST(SlicingTest, AScalarIsOneCell) {
  const TensorTable tensors = TableOf({TensorOf("[]: x=1 on a.0 [] -> x=2 on b.0-1 []")});
  ASSERT_OK_AND_ASSIGN(const Slicing slicing, Slicing::Create(tensors));
  EXPECT_THAT(slicing.grid(0).cuts, IsEmpty());
  EXPECT_THAT(slicing.grid(0).class_of_cell, ElementsAre(0));
  EXPECT_THAT(slicing.grid(0).bytes, ElementsAre(4));
  EXPECT_THAT(slicing.receivers(0), ElementsAre(1, 2));
}

TEST(SlicingTest, ClassesOfAGroupAreListedAscendingInWhateverOrderItsCellsHaveThem) {
  const TensorTable tensors =
      TableOf({TensorOf("[5]: x=2 on a.0-1 [x] chunk -> y=1 on b.0 [-]"),
               TensorOf("[5]: x=2 on a.1,a.0 [x] chunk -> y=1 on b.0 [-]")});
  ASSERT_OK_AND_ASSIGN(const Slicing slicing, Slicing::Create(tensors));
  EXPECT_THAT(slicing.grid(1).class_of_cell, ElementsAre(1, 0));
  EXPECT_THAT(slicing.grid(1).classes, ElementsAre(0, 1));
  EXPECT_THAT(slicing.grid(1).first, ElementsAre(0, 1, 2));
  EXPECT_THAT(slicing.grid(1).cells, ElementsAre(1, 0));
  EXPECT_THAT(slicing.grid(1).bytes, ElementsAre(8, 12));
  EXPECT_EQ(slicing.classes()[0].bytes, 12 + 8);
  EXPECT_EQ(slicing.classes()[1].bytes, 8 + 12);
}

TEST(SlicingTest, AGroupFindsItsOwnClassesOnly) {
  GroupGrid grid;
  EXPECT_EQ(grid.FindClass(0), -1);
  grid.classes = {1, 3};
  EXPECT_EQ(grid.FindClass(0), -1);
  EXPECT_EQ(grid.FindClass(1), 0);
  EXPECT_EQ(grid.FindClass(2), -1);
  EXPECT_EQ(grid.FindClass(3), 1);
  EXPECT_EQ(grid.FindClass(4), -1);
}

TEST(SlicingTest, MoreCellsThanTheLimitAreRefused) {
  const TensorTable tensors = TableOf({{.shape = "[16384, 16384]",
                                        .source_mesh = "x=128,y=128 on a.0-1023,b.0-1023,c.0-1023,"
                                                       "d.0-1023,e.0-1023,f.0-1023,g.0-1023,"
                                                       "h.0-1023,i.0-1023,j.0-1023,k.0-1023,"
                                                       "l.0-1023,m.0-1023,n.0-1023,o.0-1023,"
                                                       "p.0-1023",
                                        .source = "[x*y, -]",
                                        .destination_mesh = "z=16384 on a.0-1023,b.0-1023,"
                                                            "c.0-1023,d.0-1023,e.0-1023,f.0-1023,"
                                                            "g.0-1023,h.0-1023,i.0-1023,j.0-1023,"
                                                            "k.0-1023,l.0-1023,m.0-1023,n.0-1023,"
                                                            "o.0-1023,p.0-1023",
                                        .destination = "[-, z]"}});
  EXPECT_THAT(Slicing::Create(tensors),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("[16384, 16384]")));
}

// "a.0-1023,b.0-1023" of "ab".
std::string WholeHosts(absl::string_view letters) {
  std::string text;
  for (const char letter : letters) {
    absl::StrAppend(&text, text.empty() ? "" : ",", std::string(1, letter), ".0-1023");
  }
  return text;
}

TEST(SlicingTest, TheCellsOfAllGroupsTogetherAreLimited) {
  // 8,192 times 5,120 cells of each group: one has fewer than there may be, two have more.
  const TensorText grid = {.shape = "[8192, 5120]",
                           .source_mesh = "x=8192 on " + WholeHosts("abcdefgh"),
                           .source = "[x, -]",
                           .destination_mesh = "z=5120 on " + WholeHosts("ijklm"),
                           .destination = "[-, z]"};
  TensorText other_type = grid;
  other_type.type = DataType::kU8;
  const TensorTable tensors = TableOf({grid, other_type});
  static_assert(8192 * 5120 < Slicing::kCellsMax && 2 * 8192 * 5120 > Slicing::kCellsMax);
  EXPECT_THAT(Slicing::Create(tensors, {.devices = {0}}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("tensor group 1"), HasSubstr("of all groups together"))));
}

TEST(SlicingTest, AsManyCellsAsTheLimitAreNotRefused) {
  // The first cell has no holder, which is said before the others are made.
  constexpr int64_t kRows = 8192;
  static_assert(kRows * kRows == Slicing::kCellsMax);
  ExplicitLayout rows;
  Tile& tile = rows.slots.emplace_back();
  for (int64_t i = 1; i < kRows; ++i) tile.push_back(Box({{i, i + 1}, {0, kRows}}));
  TensorTable::Spec spec = TableSpecOf({{.shape = "[8192, 8192]",
                                         .source_mesh = "x=1 on z.0",
                                         .source = "[-, -]",
                                         .destination_mesh = "y=8192 on " + WholeHosts("abcdefgh"),
                                         .destination = "[-, y]"}});
  spec.sources[0].layout = Layout(std::move(rows));
  ASSERT_OK_AND_ASSIGN(const TensorTable tensors, TensorTable::Create(spec));
  EXPECT_THAT(Slicing::Create(tensors), StatusIs(absl::StatusCode::kInvalidArgument,
                                                 HasSubstr("box [0:1, 0:1] of tensor group 0")));
  // A tensor of one cell more.
  spec.groups.push_back({.shape = *ParseShape("[1]"), .source = 1, .destination = 1});
  spec.group_of_tensor.push_back(1);
  spec.sources.push_back({*ParseMesh("x=1 on z.0"), *ParseLayout("[-]")});
  spec.destinations.push_back({*ParseMesh("y=1 on z.1"), *ParseLayout("[-]")});
  ASSERT_OK_AND_ASSIGN(const TensorTable more, TensorTable::Create(std::move(spec)));
  EXPECT_THAT(Slicing::Create(more),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("tensor group 1")));
}

TEST(SlicingTest, OneClassMoreThanTheLimitIsRefused) {
  // Each of 2,048 times 2,048 cells has another holder and receiver, and then there is one more.
  static_assert(2048 * 2048 == Slicing::kClassesMax);
  const TensorTable tensors = TableOf({{.shape = "[2048, 2048]",
                                        .source_mesh = "x=2048 on " + WholeHosts("ab"),
                                        .source = "[x, -]",
                                        .destination_mesh = "z=2048 on " + WholeHosts("cd"),
                                        .destination = "[-, z]"},
                                       TensorOf("[1]: x=1 on a.0 [-] -> y=1 on e.0 [-]")});
  EXPECT_THAT(Slicing::Create(tensors), StatusIs(absl::StatusCode::kResourceExhausted,
                                                 HasSubstr("tensor group 1 of shape [1]")));
}

TEST(SlicingTest, ATensorWithoutElementsHasNoCellsHoweverOftenItIsCut) {
  const TensorTable tensors =
      TableOf({{.shape = "[16384, 16384, 0]",
                .source_mesh = "x=16384 on " + WholeHosts("abcdefghijklmnop"),
                .source = "[x, -, -]",
                .destination_mesh = "z=16384 on " + WholeHosts("abcdefghijklmnop"),
                .destination = "[-, z, -]"}});
  ASSERT_OK_AND_ASSIGN(const Slicing slicing, Slicing::Create(tensors));
  EXPECT_EQ(slicing.grid(0).cell_count(), 0);
}

TEST(SlicingTest, MoreClassesThanTheLimitAreRefused) {
  // Each of 2,048 times 2,049 cells has another holder and receiver.
  const TensorTable tensors =
      TableOf({{.shape = "[2048, 2049]",
                .source_mesh = "x=2048 on " + WholeHosts("ab"),
                .source = "[x, -]",
                .destination_mesh = "z=2049 on " + WholeHosts("cd") + ",e.0",
                .destination = "[-, z]"}});
  static_assert(2048 * 2048 == Slicing::kClassesMax);
  EXPECT_THAT(Slicing::Create(tensors),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("[2048, 2049]"), HasSubstr("at most 4194304 classes"))));
}

// One slot cuts the tensor into 8,192 parts, and each of as many others needs them all: a text of
// some kilobytes, and a gigabyte of cells.
TEST(SlicingTest, ExplicitBoxesOfMoreCellsThanTheLimitAreRefused) {
  constexpr int64_t kParts = 8192;
  static_assert(kParts * kParts == PlacedTiles::kPaintedMax);
  ExplicitLayout tiles;
  Tile& parts = tiles.slots.emplace_back();
  for (int64_t i = 0; i < kParts; ++i) parts.push_back(Box({{i, i + 1}}));
  while (std::ssize(tiles.slots) <= kParts) tiles.slots.push_back({Box({{0, kParts}})});
  TensorTable::Spec spec =
      TableSpecOf({{.shape = "[8192]",
                    .source_mesh = "x=1 on z.0",
                    .source = "[-]",
                    .destination_mesh = "y=8193 on " + WholeHosts("abcdefgh") + ",i.0",
                    .destination = "[-]"}});
  spec.destinations[0].layout = Layout(std::move(tiles));
  ASSERT_OK_AND_ASSIGN(const TensorTable tensors, TensorTable::Create(std::move(spec)));
  EXPECT_THAT(Slicing::Create(tensors),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("cells of all explicit boxes together: expected at most 67108864, "
                                 "found more")));
}

TEST(SlicingTest, ZeroSizedTensorsHaveNoCells) {
  const TensorTable tensors =
      TableOf({TensorOf("[0, 4]: x=2 on a.0-1 [x, -] -> x=2 on b.0-1 [-, x]")});
  ASSERT_OK_AND_ASSIGN(const Slicing slicing, Slicing::Create(tensors));
  EXPECT_EQ(slicing.grid(0).cell_count(), 0);
  EXPECT_THAT(slicing.classes(), IsEmpty());
}

TEST(SlicingTest, FindsAClassByItsSets) {
  const TensorTable tensors = TableOf({TensorOf("[4]: x=2 on a.0-1 [x] -> x=2 on b.0-1 [x]")});
  ASSERT_OK_AND_ASSIGN(const Slicing slicing, Slicing::Create(tensors));
  const std::vector<DeviceRank> a0 = {0}, a1 = {1}, b1 = {3}, both = {0, 1};
  EXPECT_EQ(slicing.Find(a1, b1), 1);
  EXPECT_EQ(slicing.Find(a0, b1), kNoClass);
  EXPECT_EQ(slicing.Find(b1, a1), kNoClass);
  EXPECT_EQ(slicing.Find(both, b1), kNoClass);
  EXPECT_EQ(slicing.Find(b1, both), kNoClass);
}

// What the packed bytes of a class are at a device, as text.
std::string PackingOf(const TileMap& map, ClassIndex c) {
  std::string text;
  PackedSegments segments(map);
  segments.Seek(c, 0);
  for (Segment segment = segments.Next(1 << 30); segment.bytes > 0;
       segment = segments.Next(1 << 30)) {
    absl::StrAppend(&text, segment.tensor, "@", segment.tile_offset, "+", segment.bytes, " ");
  }
  return text;
}

TEST(SlicingTest, AScopedSlicingPacksItsDevicesClassesAsTheFullOne) {
  ForEachSeed(500, [&](RandomSource& random) {
    const TensorTable tensors = RandomTensorTable(random);
    const auto device =
        static_cast<DeviceRank>(random.Below(static_cast<int64_t>(tensors.devices().size())));
    ASSERT_OK_AND_ASSIGN(const Slicing full, Slicing::Create(tensors));
    ASSERT_OK_AND_ASSIGN(const Slicing scoped, Slicing::Create(tensors, {.devices = {device}}));
    size_t in_scope = 0;
    for (ClassIndex c = 0; c < static_cast<ClassIndex>(full.classes().size()); ++c) {
      const auto has = [&](std::span<const DeviceRank> set) {
        return std::ranges::binary_search(set, device);
      };
      if (!has(full.holders(c)) && !has(full.receivers(c))) continue;
      ++in_scope;
      const ClassIndex same =
          scoped.Find(full.holders(c), full.receivers(c), full.classes()[c].conversion);
      ASSERT_NE(same, kNoClass);
      ASSERT_EQ(scoped.classes()[same].bytes, full.classes()[c].bytes);
      const Side side = has(full.holders(c)) ? Side::kSource : Side::kDestination;
      ASSERT_EQ(PackingOf(TileMap(tensors, scoped, side, device), same),
                PackingOf(TileMap(tensors, full, side, device), c));
    }
    ASSERT_EQ(scoped.classes().size(), in_scope);
  });
}

}  // namespace
}  // namespace crossmesh
