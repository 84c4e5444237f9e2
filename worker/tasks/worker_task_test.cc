#include "worker/tasks/worker_task.h"

#include "common/testing/status_matchers.h"
#include "worker/tasks/testing/task_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;

using WorkerTaskTest = TaskFixture;

TEST_F(WorkerTaskTest, ACallerThatComesAgainHearsEverythingAgain) {
  const auto first = Start(Key(1));
  first->call.OnGone();
  Finish(Key(1));
  EXPECT_THAT(first->caller->said, ElementsAre("accepted"));

  const auto second = Start(Key(1));
  EXPECT_THAT(second->caller->said, ElementsAre("accepted", "done 2 OK", "done 3 OK", "report OK"));
  Send(*second, ResolveOf({2, 3}, true));
  EXPECT_EQ(StatusOf("new", "b.1").generation, 2);
  EXPECT_THAT(Rejections(), IsEmpty());

  const auto third = Start(Key(1));
  EXPECT_EQ(third->caller->said.back(), "resolved 2,3 OK");
  EXPECT_THAT(second->caller->end, Optional(StatusIs(absl::StatusCode::kAborted)));
}

TEST_F(WorkerTaskTest, OfTwoCallersTheLastOneCommands) {
  const auto first = Start(Key(1));
  const auto second = Start(Key(1));
  Finish(Key(1));
  Send(*first, ResolveOf({2}, true));
  EXPECT_EQ(StatusOf("new", "b.0").generation, 1);
  Send(*second, ResolveOf({2}, true));
  EXPECT_EQ(StatusOf("new", "b.0").generation, 2);
}

TEST_F(WorkerTaskTest, WhatIsAskedBeforeTheEndIsResolvedAtTheEnd) {
  const auto call = Start(Key(1));
  Send(*call, ResolveOf({2}, true));
  EXPECT_THAT(call->caller->said, ElementsAre("accepted"));
  Finish(Key(1));
  EXPECT_EQ(call->caller->said.back(), "resolved 2 OK");
  EXPECT_EQ(StatusOf("new", "b.0").generation, 2);
  EXPECT_TRUE(StatusOf("new", "b.1").writing);
}

TEST_F(WorkerTaskTest, ADeviceThatFailedIsNotCommitted) {
  const auto call = Start(Key(1));
  Finish(Key(1), absl::DataLossError("leaf 3 differs"));
  EXPECT_THAT(call->caller->said,
              ElementsAre("accepted", "done 2 DATA_LOSS", "done 3 DATA_LOSS", "report DATA_LOSS"));
  Send(*call, ResolveOf({2}, true));
  EXPECT_EQ(call->caller->said.back(), "resolved 2 FAILED_PRECONDITION");
  EXPECT_THAT(call->caller->last_message, AllOf(HasSubstr("b.0"), HasSubstr("leaf 3 differs")));
  Send(*call, ResolveOf({2, 3}, false));
  EXPECT_EQ(call->caller->said.back(), "resolved 2,3 OK");
  EXPECT_FALSE(StatusOf("new", "b.0").writing);
}

TEST_F(WorkerTaskTest, ARepeatedResolutionIsAnsweredAndAnOppositeOneRefused) {
  const auto call = Start(Key(1));
  Finish(Key(1));
  Send(*call, ResolveOf({2}, true));
  Send(*call, ResolveOf({2}, true));
  EXPECT_EQ(call->caller->said.back(), "resolved 2 OK");
  EXPECT_EQ(StatusOf("new", "b.0").generation, 2);
  Send(*call, ResolveOf({2}, false));
  EXPECT_EQ(call->caller->said.back(), "resolved 2 FAILED_PRECONDITION");
  Send(*call, ResolveOf({0}, false));
  EXPECT_EQ(call->caller->said.back(), "resolved 0 INVALID_ARGUMENT");
}

TEST_F(WorkerTaskTest, ADeviceOfWhichNoWordCameIsNotCommitted) {
  const auto call = Start(Key(1));
  executor_.EndWithout(Key(1), /*device=*/2);
  RunLoops();
  Send(*call, ResolveOf({2}, true));
  EXPECT_EQ(call->caller->said.back(), "resolved 2 FAILED_PRECONDITION");
  EXPECT_THAT(call->caller->last_message, AllOf(HasSubstr("b.0"), HasSubstr("not complete")));
  EXPECT_EQ(StatusOf("new", "b.0").generation, 1);
}

TEST_F(WorkerTaskTest, AfterADeviceThatIsRefusedTheRestIsLeftOpen) {
  const auto call = Start(Key(1));
  executor_.EndWithout(Key(1), /*device=*/2);
  RunLoops();
  Send(*call, ResolveOf({2, 3}, true));
  EXPECT_EQ(call->caller->said.back(), "resolved 2,3 FAILED_PRECONDITION");
  EXPECT_THAT(call->caller->last_message, HasSubstr("b.0"));
  EXPECT_TRUE(StatusOf("new", "b.1").writing);
  EXPECT_EQ(StatusOf("new", "b.1").generation, 1);
}

TEST_F(WorkerTaskTest, OfAnswersThatTellNothingNewNoneIsRemembered) {
  const auto call = Start(Key(1));
  Finish(Key(1));
  for (int i = 0; i < 3; ++i) Send(*call, ResolveOf({2, 3}, true));
  EXPECT_THAT(call->caller->said,
              ElementsAre("accepted", "done 2 OK", "done 3 OK", "report OK", "resolved 2,3 OK",
                          "resolved 2,3 OK", "resolved 2,3 OK"));
  EXPECT_THAT(Start(Key(1))->caller->said,
              ElementsAre("accepted", "done 2 OK", "done 3 OK", "report OK", "resolved 2,3 OK"));
}

TEST_F(WorkerTaskTest, WhatWasAskedEarlyIsResolvedWithoutTheCaller) {
  const auto call = Start(Key(1));
  Send(*call, ResolveOf({2, 3}, true));
  Send(*call, ResolveOf({2}, true));  // which tells nothing new
  call->call.OnGone();
  Finish(Key(1));
  EXPECT_EQ(StatusOf("new", "b.0").generation, 2);
  EXPECT_EQ(Start(Key(1))->caller->said.back(), "resolved 2,3 OK");
}

TEST_F(WorkerTaskTest, AnEarlyResolutionThatIsRepeatedIsAnsweredOnce) {
  const auto call = Start(Key(1));
  for (int i = 0; i < 3; ++i) Send(*call, ResolveOf({2}, true));
  Finish(Key(1));
  EXPECT_THAT(call->caller->said,
              ElementsAre("accepted", "done 2 OK", "done 3 OK", "report OK", "resolved 2 OK"));
}

}  // namespace
}  // namespace crossmesh
