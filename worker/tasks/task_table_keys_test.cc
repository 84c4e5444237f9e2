// Which tasks stand in a start's way by their keys, and what a key is free for when its task is
// forgotten.

#include "common/testing/status_matchers.h"
#include "worker/tasks/testing/task_fixture.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::SizeIs;

class TaskKeysTest : public TaskFixture {
 protected:
  TaskKeysTest() {
    for (const char* device : {"b.0", "b.1"}) MakeStorage("other", device);
  }
  std::unique_ptr<FakeExecuteCall> StartElsewhere(const TaskKey& key) {
    v1::ExecuteRequest start = StartOf(key);
    start.mutable_start()->set_destination_storage("other");
    return StartWith(start);
  }
  void Acknowledge(FakeExecuteCall& call) {
    v1::ExecuteRequest request;
    request.mutable_acknowledge();
    call.call.OnRequest(request);
  }
};

TEST_F(TaskKeysTest, ALaterAttemptOfAnotherOperationIsInNoWay) {
  const auto later = StartElsewhere(Key(2, 1, 2));
  EXPECT_THAT(Start(Key(1, 1, 1))->caller->said, ElementsAre("accepted"));
}

TEST_F(TaskKeysTest, ATaskThatIsForgottenIsInNoWay) {
  const auto first = Start(Key(1, 5));
  const auto forgotten = StartElsewhere(Key(2, 5, 2));
  Finish(Key(2, 5, 2));
  Acknowledge(*forgotten);
  EXPECT_THAT(StartElsewhere(Key(2, 5, 1))->caller->said, ElementsAre("accepted"));
  Finish(Key(2, 5, 1));
  table_.GiveUp(std::vector<std::string>{"op-2"}, 5);
  EXPECT_THAT(StartElsewhere(Key(2, 6, 1))->caller->said, ElementsAre("accepted"));
  EXPECT_THAT(executor_.cancelled(), IsEmpty());
}

TEST_F(TaskKeysTest, AReportSaysOfWhichAttemptItIs) {
  const auto call = Start(Key(1, 1, 3));
  Finish(Key(1, 1, 3));
  EXPECT_EQ(call->caller->report.attempt(), 3);
}

TEST_F(TaskKeysTest, ACallerThatComesAfterTheAcknowledgementHearsTheEnd) {
  const auto first = Start(Key(1));
  Acknowledge(*first);
  RunLoops();
  const auto second = Start(Key(1));
  EXPECT_FALSE(second->caller->end.has_value());
  Finish(Key(1), absl::CancelledError("acknowledged"));
  EXPECT_EQ(second->caller->said.back(), "report CANCELLED");
  EXPECT_THAT(second->caller->end,
              Optional(StatusIs(absl::StatusCode::kAborted, HasSubstr("the task is forgotten"))));
}

TEST_F(TaskKeysTest, AKeyIsFreeWhenAStartThatWasAcknowledgedIsRefused) {
  Start(Key(9))->call.OnGone();  // so that the part is here
  Finish(Key(9));
  table_.GiveUp(std::vector<std::string>{"op-9"}, 1);
  executor_.RefuseStarts(absl::UnavailableError("no link to a worker"));
  FakeExecuteCall first(table_);
  first.call.OnRequest(StartOf(Key(1)));
  Acknowledge(first);
  RunLoops();
  executor_.RefuseStarts(absl::OkStatus());
  EXPECT_THAT(Start(Key(1))->caller->said, ElementsAre("accepted"));
  EXPECT_THAT(table_.HeldOperations(1), ElementsAre("op-1"));
}

TEST_F(TaskKeysTest, ATaskThatHasJustEndedHasMovedNothingThatIsKnown) {
  const auto call = Start(Key(1));
  executor_.SetMovedBytes(17);
  executor_.FinishTask(Key(1));
  std::vector<TaskTable::Progress> seen;
  table_.CollectProgress([&](std::vector<TaskTable::Progress> tasks) { seen = std::move(tasks); });
  RunLoops();
  ASSERT_THAT(seen, SizeIs(1));
  EXPECT_EQ(seen[0].moved_bytes, 0);
}

// As on a disk that is full.
class UnwritableEpochTest : public TaskKeysTest {
 protected:
  UnwritableEpochTest() {
    auto fence = EpochFence::Open("/no/such/folder/epoch");
    EXPECT_OK(fence);
    fenced_ = std::make_unique<TaskTable>(
        TaskTable::Options{.worker = "w2", .devices = {{"a", 0}, {"a", 1}, {"b", 0}, {"b", 1}}},
        TaskTable::Ports{.control = *control_,
                         .data = *data_,
                         .runner = executor_,
                         .storages = storages_,
                         .memory = memory_,
                         .clock = clock_,
                         .metrics = metrics_},
        *std::move(fence));
  }

  std::unique_ptr<TaskTable> fenced_;
};

TEST_F(UnwritableEpochTest, AStartMayBeTriedAgainWhenItsEpochCannotBeWritten) {
  FakeExecuteCall call(*fenced_);
  Send(call, StartOf(Key(1)));
  Send(call, PieceOf(0, part_bytes_.size(), true));
  EXPECT_THAT(call.caller->end,
              Optional(StatusIs(absl::StatusCode::kUnavailable, HasSubstr("/no/such/folder"))));
  EXPECT_FALSE(executor_.running(Key(1)));
  EXPECT_THAT(executor_.epochs(), IsEmpty());
  EXPECT_THAT(executor_.refused(), IsEmpty());
  EXPECT_THAT(Rejections(), ElementsAre("busy"));
}

}  // namespace
}  // namespace crossmesh
