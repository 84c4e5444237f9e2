// Tasks of operations that have ended at their controller while the worker did not hear of it.

#include "common/testing/status_matchers.h"
#include "worker/tasks/testing/task_fixture.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;

class EndedOperationTest : public TaskFixture {
 protected:
  void GiveUp(const std::string& operation, uint64_t epoch = 1) {
    table_.GiveUp(std::vector<std::string>{operation}, epoch);
    RunLoops();
  }
};

TEST_F(EndedOperationTest, WhatHasEndedAndIsNotResolvedIsAbandonedAtOnce) {
  const auto call = Start(Key(1));
  call->call.OnGone();
  Finish(Key(1));
  EXPECT_THAT(table_.HeldOperations(1), ElementsAre("op-1"));
  GiveUp("op-1");
  EXPECT_FALSE(StatusOf("new", "b.0").writing);
  EXPECT_EQ(StatusOf("new", "b.0").generation, 1);
  EXPECT_EQ(StatusOf("old", "a.0").readers, 0);
  EXPECT_THAT(table_.HeldOperations(1), IsEmpty());
  EXPECT_THAT(Start(Key(2))->caller->said, ElementsAre("accepted"));
}

TEST_F(EndedOperationTest, WhatRunsIsCancelledAndFreedAtItsEnd) {
  const auto call = Start(Key(1));
  call->call.OnGone();
  GiveUp("op-1");
  ASSERT_EQ(executor_.cancelled().size(), 1u);
  EXPECT_THAT(executor_.cancelled()[0].second,
              StatusIs(absl::StatusCode::kAborted, HasSubstr("has ended at its controller")));
  EXPECT_TRUE(StatusOf("new", "b.0").writing) << "it may still be written";
  EXPECT_THAT(table_.HeldOperations(1), IsEmpty()) << "it is told once";
  GiveUp("op-1");
  EXPECT_EQ(executor_.cancelled().size(), 1u);
  Finish(Key(1), absl::AbortedError("cancelled"));
  EXPECT_FALSE(StatusOf("new", "b.0").writing);
  EXPECT_EQ(table_.size(), 0);
}

TEST_F(EndedOperationTest, OthersAndThoseOfALaterControllerAreLeftAlone) {
  Start(Key(1, 5))->call.OnGone();
  GiveUp("op-2", 5);
  GiveUp("op-1", 4);
  EXPECT_THAT(executor_.cancelled(), IsEmpty());
  EXPECT_THAT(table_.HeldOperations(4), IsEmpty());
  EXPECT_THAT(table_.HeldOperations(5), ElementsAre("op-1"));
  EXPECT_THAT(table_.HeldOperations(6), ElementsAre("op-1"));
}

TEST_F(EndedOperationTest, ADrainDoesNotWaitForWhatIsGivenUp) {
  const auto call = Start(Key(1));
  Finish(Key(1));
  bool idle = false;
  table_.Drain([&] { idle = true; });
  GiveUp("op-1");
  EXPECT_TRUE(idle);
  EXPECT_THAT(call->caller->end, Optional(StatusIs(absl::StatusCode::kAborted)));
}

TEST_F(EndedOperationTest, ADrainThatIsAskedForTwiceTellsBoth) {
  const auto call = Start(Key(1));
  int idle = 0;
  table_.Drain([&] { ++idle; });
  table_.Drain([&] { ++idle; });
  Finish(Key(1));
  EXPECT_EQ(idle, 0);
  call->call.OnGone();
  EXPECT_EQ(idle, 2);
}

TEST_F(EndedOperationTest, ADestinationThatIsWrittenIsRefusedWithTheOperationThatWritesIt) {
  const auto first = Start(Key(1));
  const auto second = Start(Key(2));
  EXPECT_THAT(second->caller->end,
              Optional(StatusIs(absl::StatusCode::kAborted,
                                AllOf(HasSubstr("destination storage \"new\" of device b.0"),
                                      HasSubstr("written by operation op-1, attempt 1")))));
}

}  // namespace
}  // namespace crossmesh
