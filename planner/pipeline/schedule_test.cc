#include "planner/pipeline/schedule.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(OpTest, TextsAreThoseOfPyTorch) {
  EXPECT_EQ(ToString(Op{OpKind::kForward, 3, 7}), "3F7");
  EXPECT_EQ(ToString(Op{OpKind::kBackward, 0, 12}), "0B12");
  EXPECT_EQ(ToString(Op{OpKind::kInputGradient, 10, 0}), "10I0");
  EXPECT_EQ(ToString(Op{OpKind::kWeightGradient, 1, 1}), "1W1");
}

TEST(OpTest, OpsThatAreFusedWithTheNextAreMarked) {
  const Op op = {.kind = OpKind::kForward, .stage = 3, .microbatch = 7, .is_fused = true};
  EXPECT_EQ(ToString(op), "3F7&");
  EXPECT_THAT(ParseOp("3F7&"), IsOkAndHolds(op));
  for (const char* text : {"&", "3F&", "3F7&&", "&3F7", "3F7& "}) {
    EXPECT_THAT(ParseOp(text), IsRefused(absl::StrCat("\"", text, "\"")));
  }
}

TEST(OpTest, TextsAreReadAsAWhole) {
  EXPECT_THAT(ParseOp("3F7"), IsOkAndHolds(Op{OpKind::kForward, 3, 7}));
  EXPECT_THAT(ParseOp("10I0"), IsOkAndHolds(Op{OpKind::kInputGradient, 10, 0}));
  for (const char* text : {"", "F", "3F", "F7", "3X7", "3F7 ", " 3F7", "3F7B", "-3F7", "3F+7",
                           "3F7F8", "3f7", "3F99999999999", "2147483647F0", "0F2147483647"}) {
    EXPECT_THAT(ParseOp(text), IsRefused(absl::StrCat("\"", text, "\"")));
  }
}

TEST(ScheduleTest, TextIsReadBack) {
  const char* const text = "0F0 0F1 0B0 0B1\n1F0 1I0 1W0 1F1 1B1\n";
  ASSERT_OK_AND_ASSIGN(const Schedule schedule, ParseSchedule(text));
  EXPECT_EQ(schedule.stages, 2);
  EXPECT_EQ(schedule.microbatches, 2);
  EXPECT_EQ(ToString(schedule), text);
  EXPECT_THAT(ParseSchedule("0F0 nothing"), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(ScheduleTest, DelayedWeightGradientsComeAfterThoseOfTheInput) {
  ASSERT_OK_AND_ASSIGN(const Schedule schedule, ParseSchedule("0F0 0F1 0B0 0B1\n"));
  EXPECT_EQ(ToString(DelayWeightGradients(schedule)), "0F0 0F1 0I0 0W0 0I1 0W1\n");
  EXPECT_EQ(DelayWeightGradients(DelayWeightGradients(schedule)), DelayWeightGradients(schedule));
}

TEST(ScheduleTest, BackwardOpsThatAreFusedStayWhole) {
  const char* const text = "0F0 0F1& 0B0 0B1\n";
  ASSERT_OK_AND_ASSIGN(const Schedule schedule, ParseSchedule(text));
  EXPECT_EQ(ToString(schedule), text);
  EXPECT_NE(schedule, *ParseSchedule("0F0 0F1 0B0 0B1\n"));
  EXPECT_EQ(ToString(DelayWeightGradients(schedule)), "0F0 0F1& 0B0 0I1 0W1\n");
}

}  // namespace
}  // namespace crossmesh
