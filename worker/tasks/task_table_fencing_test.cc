// What a controller of a higher epoch finds of the tasks of former ones.

#include "common/testing/status_matchers.h"
#include "worker/tasks/testing/task_fixture.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::Pair;

// A task of epoch 5 that runs without a caller, as after the loss of its controller.
class FencedTaskTest : public TaskFixture {
 protected:
  FencedTaskTest() { Start(Key(1, 5))->call.OnGone(); }
  bool WasCancelled(const TaskKey& key) const {
    return std::any_of(executor_.cancelled().begin(), executor_.cancelled().end(),
                       [&](const auto& cancelled) { return cancelled.first == key; });
  }
};

TEST_F(FencedTaskTest, AStartOfTheNextEpochWaitsForItsEnd) {
  const auto next = Start(Key(2, 6));
  EXPECT_TRUE(WasCancelled(Key(1, 5)));
  EXPECT_THAT(next->caller->said, IsEmpty());
  EXPECT_FALSE(executor_.running(Key(2, 6)));
  Finish(Key(1, 5), absl::AbortedError("cancelled"));
  EXPECT_THAT(next->caller->said, ElementsAre("accepted"));
  Finish(Key(2, 6));
  Send(*next, ResolveOf({2, 3}, true));
  EXPECT_EQ(next->caller->said.back(), "resolved 2,3 OK");
  Advance(absl::Minutes(1));
  EXPECT_FALSE(next->caller->end.has_value()) << "of a wait that is over";
  EXPECT_THAT(Rejections(), IsEmpty());
}

TEST_F(FencedTaskTest, ThatWritesElsewhereRunsOn) {
  MakeStorage("other", "b.0");
  MakeStorage("other", "b.1");
  v1::ExecuteRequest start = StartOf(Key(2, 6));
  start.mutable_start()->set_destination_storage("other");
  EXPECT_THAT(StartWith(start)->caller->said, ElementsAre("accepted"));
  EXPECT_FALSE(WasCancelled(Key(1, 5)));
}

TEST_F(FencedTaskTest, OfTheSameEpochIsNotCancelled) {
  const auto other = Start(Key(2, 5));
  EXPECT_THAT(other->caller->end, Optional(StatusIs(absl::StatusCode::kAborted)));
  EXPECT_FALSE(WasCancelled(Key(1, 5)));
}

TEST_F(FencedTaskTest, AStartDoesNotWaitForEver) {
  const auto next = Start(Key(2, 6));
  Advance(absl::Seconds(2));
  EXPECT_FALSE(next->caller->end.has_value());
  Advance(absl::Seconds(1));
  EXPECT_THAT(next->caller->end,
              Optional(StatusIs(absl::StatusCode::kAborted, HasSubstr("operation op-1"))));
  EXPECT_THAT(Rejections(), ElementsAre("busy"));
  Finish(Key(1, 5), absl::AbortedError("cancelled"));
  EXPECT_FALSE(executor_.running(Key(2, 6)));
}

TEST_F(FencedTaskTest, AStartThatWaitsCanBeCancelledAndAcknowledged) {
  const auto cancelled = Start(Key(2, 6));
  v1::ExecuteRequest cancel;
  cancel.mutable_cancel()->set_reason("no longer wanted");
  Send(*cancelled, cancel);
  EXPECT_THAT(cancelled->caller->end,
              Optional(StatusIs(absl::StatusCode::kAborted, HasSubstr("no longer wanted"))));
  const auto acknowledged = Start(Key(3, 6));
  v1::ExecuteRequest acknowledge;
  acknowledge.mutable_acknowledge();
  Send(*acknowledged, acknowledge);
  EXPECT_THAT(acknowledged->caller->end, Optional(absl::OkStatus()));
  EXPECT_THAT(executor_.refused(), ElementsAre(Key(2, 6), Key(3, 6)));
  Finish(Key(1, 5), absl::AbortedError("cancelled"));
  EXPECT_FALSE(executor_.running(Key(2, 6)));
  EXPECT_FALSE(executor_.running(Key(3, 6)));
}

TEST_F(FencedTaskTest, AStartThatWaitsGoesWithItsCallerAndComesAgain) {
  const auto first = Start(Key(2, 6));
  const auto second = Start(Key(2, 6));
  EXPECT_THAT(first->caller->end, Optional(StatusIs(absl::StatusCode::kAborted)));
  second->call.OnGone();
  EXPECT_THAT(executor_.refused(), IsEmpty()) << "it may come again";
  Finish(Key(1, 5), absl::AbortedError("cancelled"));
  EXPECT_FALSE(executor_.running(Key(2, 6)));
  const auto third = Start(Key(2, 6));
  EXPECT_THAT(third->caller->said, ElementsAre("accepted"));
}

TEST_F(FencedTaskTest, AStartThatWaitsHearsOfLostPeersWhenItBegins) {
  const auto next = Start(Key(2, 6));
  v1::ExecuteRequest lost;
  lost.mutable_peer_lost()->set_worker("w7");
  Send(*next, lost);
  EXPECT_THAT(executor_.lost(), IsEmpty());
  Finish(Key(1, 5), absl::AbortedError("cancelled"));
  EXPECT_THAT(executor_.lost(), ElementsAre(Pair(Key(2, 6), "w7")));
}

TEST_F(FencedTaskTest, AStartThatWaitsIsFencedByAHigherEpoch) {
  const auto fenced = Start(Key(2, 6));
  const auto next = Start(Key(3, 7));
  Finish(Key(1, 5), absl::AbortedError("cancelled"));
  EXPECT_THAT(fenced->caller->end, Optional(StatusIs(absl::StatusCode::kFailedPrecondition)));
  EXPECT_THAT(next->caller->said, ElementsAre("accepted"));
}

TEST_F(FencedTaskTest, AStartThatWaitsWithOtherContentIsRefused) {
  const auto first = Start(Key(2, 6));
  v1::ExecuteRequest other = StartOf(Key(2, 6));
  other.mutable_start()->set_destination_storage("elsewhere");
  EXPECT_THAT(StartWith(other)->caller->end, Optional(StatusIs(absl::StatusCode::kAlreadyExists)));
  EXPECT_FALSE(first->caller->end.has_value());
}

TEST_F(FencedTaskTest, AStartThatWaitsIsThatOfItsLastCaller) {
  const auto first = Start(Key(2, 6));
  const auto second = Start(Key(2, 6));
  first->call.OnGone();
  Finish(Key(1, 5), absl::AbortedError("cancelled"));
  EXPECT_THAT(second->caller->said, ElementsAre("accepted"));
}

TEST_F(FencedTaskTest, AStartWaitsOnWhenAnotherTaskEnds) {
  const auto next = Start(Key(2, 6));
  for (const char* device : {"b.0", "b.1"}) MakeStorage("other", device);
  v1::ExecuteRequest start = StartOf(Key(3, 6));
  start.mutable_start()->set_destination_storage("other");
  const auto other = StartWith(start);
  Finish(Key(3, 6));
  EXPECT_FALSE(next->caller->end.has_value());
  EXPECT_FALSE(executor_.running(Key(2, 6)));
  Finish(Key(1, 5), absl::AbortedError("cancelled"));
  EXPECT_THAT(next->caller->said, ElementsAre("accepted"));
}

TEST_F(FencedTaskTest, AStartThatWaitsForOneThatIsRefusedHearsOfIt) {
  Finish(Key(1, 5), absl::AbortedError("cancelled"));
  table_.GiveUp(std::vector<std::string>{"op-1"}, 5);
  executor_.RefuseStarts(absl::UnavailableError("no link to a worker"));
  // Neither has been looked at by the executor when the second one comes.
  FakeExecuteCall first(table_);
  first.call.OnRequest(StartOf(Key(2, 5)));
  first.call.OnGone();
  FakeExecuteCall second(table_);
  second.call.OnRequest(StartOf(Key(3, 6)));
  EXPECT_FALSE(second.caller->end.has_value());
  RunLoops();
  EXPECT_THAT(second.caller->end, Optional(StatusIs(absl::StatusCode::kUnavailable)));
}

TEST_F(FencedTaskTest, OfAnotherOperationIsNotSuperseded) {
  for (const char* device : {"b.0", "b.1"}) MakeStorage("other", device);
  v1::ExecuteRequest start = StartOf(Key(9, 5));
  start.mutable_start()->set_destination_storage("other");
  StartWith(start)->call.OnGone();
  const auto next = Start(Key(2, 6));
  EXPECT_TRUE(WasCancelled(Key(1, 5))) << "for its destinations";
  EXPECT_FALSE(WasCancelled(Key(9, 5)));
}

TEST_F(FencedTaskTest, TheExecutorIsToldOfEveryEpochOnce) {
  EXPECT_THAT(executor_.epochs(), ElementsAre(5));
  Start(Key(2, 6))->call.OnGone();
  Start(Key(3, 6))->call.OnGone();
  Start(Key(4, 7))->call.OnGone();
  EXPECT_THAT(executor_.epochs(), ElementsAre(5, 6, 7));
}

TEST_F(FencedTaskTest, CancellingAllEndsStartsThatWait) {
  const auto next = Start(Key(2, 6));
  table_.CancelAll(absl::CancelledError("the worker stops"));
  EXPECT_THAT(next->caller->end,
              Optional(StatusIs(absl::StatusCode::kCancelled, HasSubstr("the worker stops"))));
}

TEST_F(FencedTaskTest, ADrainEndsStartsThatWait) {
  const auto next = Start(Key(2, 6));
  table_.Drain([] {});
  EXPECT_THAT(next->caller->end, Optional(StatusIs(absl::StatusCode::kFailedPrecondition,
                                                   HasSubstr("found it draining"))));
}

}  // namespace
}  // namespace crossmesh
