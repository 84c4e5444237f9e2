#include "common/mesh/conversion.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

Shape Tensor(std::vector<int64_t> lengths) { return *Shape::Create(lengths); }

TEST(ConversionTest, FloatsOfTwoAndFourBytesConvertToEachOther) {
  const DataType floats[] = {DataType::kF32, DataType::kF16, DataType::kBF16};
  for (const DataType from : floats) {
    for (const DataType to : floats) EXPECT_OK(CheckConversion(from, to));
  }
  EXPECT_OK(CheckConversion(DataType::kI64, DataType::kI64));
}

TEST(ConversionTest, OnlyBf16ConvertsToFp8) {
  EXPECT_OK(CheckConversion(DataType::kBF16, DataType::kF8E4M3));
  EXPECT_THAT(CheckConversion(DataType::kF32, DataType::kF8E4M3), IsRefused("F32"));
  EXPECT_THAT(CheckConversion(DataType::kBF16, DataType::kF8E5M2), IsRefused("F8_E5M2"));
  EXPECT_THAT(CheckConversion(DataType::kI32, DataType::kF32),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(ConversionTest, ScalesAreCountedByBlocksOfTheLastTwoDimensions) {
  EXPECT_EQ(*ScaleShape(Tensor({3, 300, 128})), Tensor({3, 3, 1}));
  EXPECT_EQ(*ScaleShape(Tensor({1, 129})), Tensor({1, 2}));
  EXPECT_EQ(*ScaleShape(Tensor({0, 5})), Tensor({0, 1}));
  EXPECT_THAT(ScaleShape(Tensor({300})), IsRefused("at least 2 dimensions"));
}

TEST(ConversionTest, ABoxOfWholeBlocksHasABoxOfScales) {
  const Shape tensor = Tensor({4, 300, 260});
  EXPECT_EQ(*ScaleBox(tensor, *ParseBox("[1:3, 128:300, 0:256]")), *ParseBox("[1:3, 1:3, 0:2]"));
  EXPECT_EQ(*ScaleBox(tensor, tensor.FullBox()), *ParseBox("[0:4, 0:3, 0:3]"));
  EXPECT_EQ(*ScaleBox(tensor, *ParseBox("[0:4, 300:300, 0:256]")), *ParseBox("[0:4, 3:3, 0:2]"));
}

TEST(ConversionTest, ABoxThatCutsABlockIsRefusedWithDimensionAndCut) {
  const Shape tensor = Tensor({4, 300, 260});
  EXPECT_THAT(ScaleBox(tensor, *ParseBox("[0:4, 0:200, 0:128]")),
              IsRefused("dimension 1 is cut at 200"));
  EXPECT_THAT(ScaleBox(tensor, *ParseBox("[0:4, 0:300, 64:260]")),
              IsRefused("dimension 2 is cut at 64"));
  EXPECT_THAT(ScaleBox(Tensor({300}), *ParseBox("[0:128]")),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace crossmesh
