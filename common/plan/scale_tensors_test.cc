#include "common/plan/scale_tensors.h"

#include "common/plan/storage_layout.h"
#include "common/plan/testing/tables.h"
#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <string>
#include <utility>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Shape Lengths(std::vector<int64_t> lengths) { return *Shape::Create(lengths); }

Placement Placed(absl::string_view mesh, absl::string_view layout) {
  return {.mesh = *ParseMesh(mesh), .layout = *ParseLayout(layout)};
}

TensorText Quantized() {
  return TensorOf("[512, 300]: x=2 on a.0-1 [x, -] -> y=4 on b.0-3 [y, -]", DataType::kBF16,
                  DataType::kF8E4M3);
}

TEST(PlaceScalesTest, ALayoutThatCutsScalesLikeElementsStays) {
  const Placement placement = Placed("x=4 on a.0-3", "[x, -]");
  EXPECT_THAT(PlaceScales(placement, Lengths({512, 300})), IsOkAndHolds(placement));
}

TEST(PlaceScalesTest, TheLastBlocksMayBeSmaller) {
  const Placement placement = Placed("x=3 on a.0-2", "[x, -] chunk");
  EXPECT_THAT(PlaceScales(placement, Lengths({383, 5})), IsOkAndHolds(placement));
}

TEST(PlaceScalesTest, ExplicitTilesBecomeThoseOfTheirBlocks) {
  ASSERT_OK_AND_ASSIGN(const Placement scales,
                       PlaceScales(Placed("x=2 on a.0-1",
                                          "{[0:128, 0:200] [256:300, 0:200]; "
                                          "[128:256, 0:128]}"),
                                   Lengths({300, 200})));
  EXPECT_EQ(ToString(scales.layout), "{[0:1, 0:2] [2:3, 0:2]; [1:2, 0:1]}");
}

TEST(PlaceScalesTest, ATileThatCutsABlockIsRefused) {
  EXPECT_THAT(PlaceScales(Placed("x=4 on a.0-3", "[x, -]"), Lengths({256, 300})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("slot 0: "), HasSubstr("dimension 0 is cut at 64"))));
  EXPECT_THAT(PlaceScales(Placed("x=1 on a.0", "[x]"), Lengths({256})),
              IsRefused("at least 2 dimensions"));
}

TEST(AddScalesTest, ScalesFollowAllTensorsInTheirOrder) {
  TensorText plain = Quantized();
  plain.sent_as = DataType::kF16;
  TensorTable::Spec spec = TableSpecOf({plain, Quantized(), plain});
  spec.group_of_tensor = {1, 0, -1, 1, 2};
  ASSERT_OK(AddScales(spec));
  EXPECT_THAT(spec.group_of_tensor, ElementsAre(1, 0, -1, 1, 2, 3, 3));
  EXPECT_THAT(spec.scaled_tensors, ElementsAre(0, 3));
  EXPECT_EQ(spec.groups[3].shape, Lengths({4, 3}));
  EXPECT_EQ(spec.groups[3].type, DataType::kF32);
  ASSERT_OK_AND_ASSIGN(const TensorTable table, TensorTable::Create(std::move(spec)));
  EXPECT_TRUE(table.is_scales(3));
  EXPECT_FALSE(table.is_scales(1));
  EXPECT_EQ(table.first_scales(), 5);
}

TEST(AddScalesTest, OnlyTensorsThatAreConvertedHaveScales) {
  TensorTable::Spec spec = TableSpecOf({TensorOf(
      "[256, 128]: x=1 on a.0 [-, -] -> y=1 on b.0 [-, -]", DataType::kF8E4M3, DataType::kF8E4M3)});
  ASSERT_OK(AddScales(spec));
  EXPECT_EQ(spec.group_of_tensor.size(), 1u);
  EXPECT_OK(TensorTable::Create(std::move(spec)));
}

TEST(AddScalesTest, ScalesShareThePlacementsThatAreThereAndAddOthersOnce) {
  // Rows by an axis are those of the scales as well; explicit tiles become others.
  const TensorText tensor =
      TensorOf("[256, 128]: x=2 on a.0-1 [x, -] -> y=2 on b.0-1 {[0:128, 0:128]; [128:256, 0:128]}",
               DataType::kBF16, DataType::kF8E4M3);
  TensorTable::Spec spec = TableSpecOf({tensor, tensor});
  ASSERT_OK(AddScales(spec));
  EXPECT_EQ(spec.sources.size(), 2u);
  ASSERT_EQ(spec.destinations.size(), 3u);
  EXPECT_EQ(ToString(spec.destinations[2].layout), "{[0:1, 0:1]; [1:2, 0:1]}");
  ASSERT_EQ(spec.groups.size(), 4u);
  for (const size_t scales : {2, 3}) {
    EXPECT_EQ(spec.groups[scales].source, 0);
    EXPECT_EQ(spec.groups[scales].destination, 2);
  }
  EXPECT_OK(TensorTable::Create(std::move(spec)));
}

TEST(AddScalesTest, SourcesHaveNoMemoryForScales) {
  const TensorTable table = TableOf({Quantized()});
  EXPECT_THAT(LayOut(table, Side::kSource, 0).offset_of_tensor, ElementsAre(0, -1));
  EXPECT_EQ(table.BytesOf(Side::kSource, 0), 256 * 300 * 2);
  // An fp8 is a byte, a row of blocks of 128 x 300 elements has three scales.
  EXPECT_THAT(LayOut(table, Side::kDestination, 2).offset_of_tensor, ElementsAre(0, 128 * 300));
  EXPECT_EQ(table.BytesOf(Side::kDestination, 2), 128 * 300 + 3 * 4);
}

TEST(AddScalesTest, ATableIsRefusedWithoutItsScalesOrWithOthers) {
  const auto refused = [](TensorTable::Spec spec, absl::string_view what) {
    EXPECT_THAT(TensorTable::Create(std::move(spec)), IsRefused(std::string(what)));
  };
  TensorTable::Spec spec = TableSpecOf({Quantized()});
  refused(spec, "expected those of all 1 tensors");
  ASSERT_OK(AddScales(spec));
  TensorTable::Spec other = spec;
  other.scaled_tensors = {0, 1, 1};
  refused(other, "expected those of all 0 tensors");
  other = spec;
  other.group_of_tensor[1] = -1;
  refused(other, "scales of tensor 0: expected in group");
  other = spec;
  other.group_of_tensor[1] = 0;
  refused(other, "as the scales of group 0");
  other = spec;
  other.groups[1].type = DataType::kI32;
  refused(other, "expected F32[4, 3]");
  other = spec;
  other.destinations[0] = Placed("y=4 on b.0-3", "[-, y] chunk");
  refused(other, "inside a scale block");
  other = spec;
  other.groups.push_back(other.groups[1]);
  other.groups.back().destination = 1;
  other.destinations.push_back(Placed("y=4 on b.0-3", "[-, y] chunk"));
  other.group_of_tensor[1] = 2;
  refused(other, "as the scales of group 0");
}

TEST(AddScalesTest, ScalesOnOtherDevicesThanTheirTensorAreRefused) {
  TensorTable::Spec spec = TableSpecOf({Quantized()});
  ASSERT_OK(AddScales(spec));
  // The same tiles as those of the tensor.
  spec.sources.push_back(Placed("x=2 on c.0-1", "[x, -]"));
  spec.destinations.push_back(Placed("y=4 on b.1,b.0,b.2,b.3", "[y, -]"));
  for (const Side side : {Side::kSource, Side::kDestination}) {
    TensorTable::Spec other = spec;
    (side == Side::kSource ? other.groups[1].source : other.groups[1].destination) = 1;
    EXPECT_THAT(TensorTable::Create(std::move(other)), IsRefused("as the scales of group 0"));
  }
  EXPECT_OK(TensorTable::Create(spec));
  // Of both sides the source is named.
  spec.groups[1].source = spec.groups[1].destination = 1;
  EXPECT_THAT(TensorTable::Create(std::move(spec)),
              IsRefused("tensor group 1: expected [x, -], as the scales of group 0"));
}

TEST(AddScalesTest, ScalesOfAnotherShapeOrTypeAreRefused) {
  TensorTable::Spec spec = TableSpecOf({Quantized()});
  ASSERT_OK(AddScales(spec));
  const std::string expected = "tensor group 1: expected F32[4, 3], as the scales of group 0";
  TensorTable::Spec other = spec;
  other.groups[1].shape = Lengths({4, 4});
  EXPECT_THAT(TensorTable::Create(std::move(other)), IsRefused(expected));
  other = spec;
  other.groups[1].type = DataType::kBF16;
  EXPECT_THAT(TensorTable::Create(std::move(other)), IsRefused(expected));
  other = spec;
  other.groups[1].sent_as = DataType::kBF16;
  EXPECT_THAT(TensorTable::Create(std::move(other)), IsRefused(expected));
  other = spec;
  other.groups[1].sent_as = DataType::kF32;
  EXPECT_OK(TensorTable::Create(std::move(other)));
}

TEST(AddScalesTest, ScalesOfAGroupAreInOneGroup) {
  TensorTable::Spec spec = TableSpecOf({Quantized()});
  spec.group_of_tensor = {0, 0};
  ASSERT_OK(AddScales(spec));
  EXPECT_THAT(spec.group_of_tensor, ElementsAre(0, 0, 1, 1));
  for (const int32_t scales : {0, -1}) {
    TensorTable::Spec other = spec;
    other.group_of_tensor[3] = scales;
    EXPECT_THAT(
        TensorTable::Create(std::move(other)),
        IsRefused(absl::StrCat("scales of tensor 1: expected in group 1, found in ", scales)));
  }
  EXPECT_OK(TensorTable::Create(std::move(spec)));
}

TEST(AddScalesTest, ScalesMayBeInTheFirstGroup) {
  TensorTable::Spec spec = TableSpecOf({Quantized()});
  ASSERT_OK(AddScales(spec));
  std::swap(spec.groups[0], spec.groups[1]);
  spec.group_of_tensor = {1, 0};
  ASSERT_OK_AND_ASSIGN(const TensorTable table, TensorTable::Create(spec));
  EXPECT_TRUE(table.is_scales(0));
  EXPECT_FALSE(table.is_scales(1));
  spec.groups[0].type = DataType::kI32;
  EXPECT_THAT(TensorTable::Create(std::move(spec)),
              IsRefused("tensor group 0: expected F32[4, 3], as the scales of group 1"));
}

TEST(AddScalesTest, NoOtherTensorIsInAGroupOfScales) {
  TensorTable::Spec spec = TableSpecOf({Quantized()});
  ASSERT_OK(AddScales(spec));
  TensorTable::Spec other = spec;
  other.group_of_tensor = {0, 1, 1};
  EXPECT_THAT(TensorTable::Create(std::move(other)), IsRefused("scales only, found tensor 1"));
  other = spec;
  other.group_of_tensor = {1, 0, 1};
  other.scaled_tensors = {1};
  EXPECT_THAT(TensorTable::Create(std::move(other)), IsRefused("scales only, found tensor 0"));
}

}  // namespace
}  // namespace crossmesh
