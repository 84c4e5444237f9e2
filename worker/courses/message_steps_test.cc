#include "worker/courses/message_steps.h"

#include <optional>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using StepAt = MessageSteps::At;

// As an all-reduce has them: the first step reduces, the second one fills destination tiles.
TEST(MessageSteps, TheLastStepBeginsWithTheFirstAndIsFedAfterIt) {
  MessageSteps steps({true, false}, 2);
  steps.Open(1);
  EXPECT_EQ(steps.Begin(), (StepAt{0, 1}));
  EXPECT_EQ(steps.Begin(), (StepAt{1, 1}));
  EXPECT_EQ(steps.Begin(), std::nullopt);
  EXPECT_EQ(steps.Feed(), std::nullopt);
  steps.OnSource(1);
  EXPECT_EQ(steps.Feed(), (StepAt{0, 1}));
  steps.OnMoved({0, 1});
  EXPECT_EQ(steps.Feed(), std::nullopt);
  EXPECT_EQ(steps.Reduce(), (StepAt{0, 1}));
  EXPECT_EQ(steps.Reduce(), std::nullopt);
  steps.OnReduced({0, 1});
  EXPECT_EQ(steps.Feed(), (StepAt{1, 1}));
  EXPECT_FALSE(steps.IsDone(1));
  steps.OnMoved({1, 1});
  EXPECT_TRUE(steps.IsDone(1));
}

TEST(MessageSteps, StepsWhoseArraysTakeTurnsBeginOneAfterTheOther) {
  MessageSteps steps({false, true, true}, 1);
  steps.Open(0);
  steps.OnSource(0);
  for (int32_t step = 0; step < 3; ++step) {
    EXPECT_EQ(steps.Begin(), (StepAt{step, 0}));
    EXPECT_EQ(steps.Begin(), std::nullopt);
    EXPECT_EQ(steps.Feed(), (StepAt{step, 0}));
    EXPECT_EQ(steps.moving(0), 1);
    steps.OnMoved({step, 0});
    if (step == 0) continue;
    EXPECT_EQ(steps.Reduce(), (StepAt{step, 0}));
    steps.OnReduced({step, 0});
  }
  EXPECT_TRUE(steps.IsDone(0));
}

TEST(MessageSteps, EachStepTakesTheMessagesInTheirOrder) {
  MessageSteps steps({false, true, true}, 2);
  for (const int32_t buffer : {1, 0}) {
    steps.Open(buffer);
    steps.OnSource(buffer);
  }
  EXPECT_EQ(steps.Begin(), (StepAt{0, 1}));
  EXPECT_EQ(steps.Begin(), (StepAt{0, 0}));
  steps.Feed();
  steps.Feed();
  steps.OnMoved({0, 0});
  EXPECT_EQ(steps.Begin(), std::nullopt);
  steps.OnMoved({0, 1});
  EXPECT_EQ(steps.Begin(), (StepAt{1, 1}));
  EXPECT_EQ(steps.Begin(), (StepAt{1, 0}));
}

}  // namespace
}  // namespace crossmesh
