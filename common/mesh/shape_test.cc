#include "common/mesh/shape.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <limits>
#include <vector>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(ShapeTest, HoldsLengthsAndCountsElements) {
  ASSERT_OK_AND_ASSIGN(const Shape shape, Shape::Create(std::vector<int64_t>{7, 5}));
  EXPECT_EQ(shape.rank(), 2);
  EXPECT_EQ(shape[1], 5);
  EXPECT_EQ(shape.elements(), 35);
  EXPECT_EQ(shape.FullBox(), Box({{0, 7}, {0, 5}}));
  EXPECT_EQ(Shape().elements(), 1);
}

TEST(ShapeTest, PrintsAndParses) {
  ASSERT_OK_AND_ASSIGN(const Shape shape, ParseShape("[50257,768]"));
  EXPECT_EQ(ToString(shape), "[50257, 768]");
  EXPECT_THAT(ParseShape("[]"), IsOkAndHolds(Shape()));
  EXPECT_THAT(ParseShape("[7, x]"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "shape \"[7, x]\", column 5: expected a number, found \"x\""));
}

TEST(ShapeTest, AcceptsZeroLengthsAndTheLimits) {
  EXPECT_OK(Shape::Create(std::vector<int64_t>{0, 4096}));
  EXPECT_OK(Shape::Create(std::vector<int64_t>{Shape::kDimensionMax, 256}));
  EXPECT_OK(Shape::Create(std::vector<int64_t>(16, 8)));
}

TEST(ShapeTest, RefusesWhatPassesALimitWhereverTheZeroStands) {
  const int64_t huge = Shape::kDimensionMax;
  const std::vector<std::vector<int64_t>> cases = {{-1},
                                                   {huge + 1},
                                                   {huge, 257},
                                                   {huge, huge, huge, huge},
                                                   {0, huge, huge},
                                                   {huge, huge, 0},
                                                   std::vector<int64_t>(17, 1),
                                                   {std::numeric_limits<int64_t>::max()},
                                                   {std::numeric_limits<int64_t>::min()}};
  for (const std::vector<int64_t>& lengths : cases) {
    EXPECT_THAT(Shape::Create(lengths), IsRefused("shape")) << ::testing::PrintToString(lengths);
  }
}

TEST(ShapeTest, NamesTheDimensionAndTheLimit) {
  EXPECT_THAT(Shape::Create(std::vector<int64_t>{3, -1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "shape [3, -1]: dimension 1: expected a length of 0 to 1099511627776, "
                       "found -1"));
}

}  // namespace
}  // namespace crossmesh
