#include "planner/parallelism/grid.h"

#include "common/testing/status_matchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

TEST(GridTest, TextReadsAsTheGrid) {
  const absl::StatusOr<Grid> grid = ParseGrid("r=4,z=8,data=2");
  ASSERT_OK(grid.status());
  EXPECT_EQ(grid->r(), 4);
  EXPECT_EQ(grid->z(), 8);
  EXPECT_EQ(grid->c(), 1);
  EXPECT_EQ(grid->devices(), 64);
  EXPECT_EQ(grid->tensor_degree(), 32);
  EXPECT_EQ(grid->sample_groups(), 16);
  EXPECT_EQ(grid->axes_used(), 3);
  EXPECT_EQ(ToString(*grid), "r=4,z=8,data=2");
  EXPECT_EQ(ToString(*ParseGrid("context=2,expert=3,pipeline=5")), "context=2,expert=3,pipeline=5");
  EXPECT_EQ(*ParseGrid(ToString(Grid{})), Grid{});
}

TEST(GridTest, TextThatMeansNothingIsNamed) {
  for (const char* text :
       {"", "r", "r=", "r=0", "r=-1", "r=2,", "q=2", "r=65537", "r=2x", "r=2=2"}) {
    EXPECT_THAT(ParseGrid(text), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found")))
        << text;
  }
  EXPECT_THAT(ParseGrid("r=2,r=2"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found r again")));
  EXPECT_THAT(ParseGrid("r=60000,z=60000"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 65536 devices")));
  EXPECT_THAT(ParseGridAxis("y"), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("expected one of c, r, z, context")));
}

TEST(GridTest, TheOrderSaysWhatIsInside) {
  const Grid grid = *ParseGrid("c=2,r=3,z=5,pipeline=7,data=11");
  const PerAxis<int64_t> paper = InnerSizes(grid, kGridOrder);
  EXPECT_EQ(paper[GridAxis::kC], 1);
  EXPECT_EQ(paper[GridAxis::kR], 2);
  EXPECT_EQ(paper[GridAxis::kZ], 6);
  EXPECT_EQ(paper[GridAxis::kPipeline], 30);
  EXPECT_EQ(paper[GridAxis::kData], 210);
  ASSERT_OK_AND_ASSIGN(const GridOrder order, ParseGridOrder("data,c,r,z,context,expert,pipeline"));
  EXPECT_EQ(InnerSizes(grid, order)[GridAxis::kC], 11);
  EXPECT_EQ(ToString(order), "data,c,r,z,context,expert,pipeline");
  for (const char* text : {"c,r,z", "c,c,r,z,context,expert,pipeline", ""}) {
    EXPECT_THAT(ParseGridOrder(text), StatusIs(absl::StatusCode::kInvalidArgument,
                                               HasSubstr("expected each of c,r,z,context")));
  }
}

}  // namespace
}  // namespace crossmesh
