// How many tasks there may be, which starts may be tried again, and which as sources only.

#include "common/testing/status_matchers.h"
#include "worker/tasks/testing/task_fixture.h"

#include <memory>
#include <string>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;

// Of three storages, so that tasks do not stand in each other's way.
class TaskRoomTest : public TaskFixture {
 protected:
  TaskRoomTest() : TaskFixture({.tasks_max = 2}) {
    for (const char* name : {"new-1", "new-2", "new-3"}) {
      for (const char* device : {"b.0", "b.1"}) MakeStorage(name, device);
    }
  }
  std::unique_ptr<FakeExecuteCall> StartOn(const std::string& storage, const TaskKey& key) {
    v1::ExecuteRequest start = StartOf(key);
    start.mutable_start()->set_destination_storage(storage);
    return StartWith(start);
  }
};

TEST_F(TaskRoomTest, TheTaskThatEndedFirstMakesRoom) {
  // The second ends first, so that neither keys nor starts tell the order.
  StartOn("new-1", Key(1))->call.OnGone();
  StartOn("new-2", Key(2))->call.OnGone();
  Finish(Key(2));
  Advance(absl::Seconds(1));
  Finish(Key(1));
  EXPECT_THAT(StartOn("new-3", Key(3))->caller->said, ElementsAre("accepted"));
  EXPECT_THAT(table_.HeldOperations(1), ElementsAre("op-1", "op-3"));
}

TEST_F(TaskRoomTest, OfTasksThatEndedAtOnceTheOneOfTheFirstKeyMakesRoom) {
  StartOn("new-1", Key(1))->call.OnGone();
  StartOn("new-2", Key(2))->call.OnGone();
  Finish(Key(2));
  Finish(Key(1));
  EXPECT_THAT(StartOn("new-3", Key(3))->caller->said, ElementsAre("accepted"));
  EXPECT_THAT(table_.HeldOperations(1), ElementsAre("op-2", "op-3"));
}

TEST_F(TaskRoomTest, NeitherATaskThatRunsNorOneWithACallerMakesRoom) {
  StartOn("new-1", Key(1))->call.OnGone();
  const auto ended = StartOn("new-2", Key(2));
  Finish(Key(2));
  EXPECT_THAT(StartOn("new-3", Key(3))->caller->end,
              Optional(StatusIs(absl::StatusCode::kResourceExhausted)));
  EXPECT_THAT(table_.HeldOperations(1), ElementsAre("op-1", "op-2"));
}

TEST_F(TaskRoomTest, AStartThatWaitsTakesRoom) {
  StartOn("new-1", Key(1, 5))->call.OnGone();
  const auto waiting = StartOn("new-1", Key(2, 6));
  EXPECT_THAT(waiting->caller->said, IsEmpty());
  const auto refused = StartOn("new-3", Key(3, 6));
  EXPECT_THAT(refused->caller->end, Optional(StatusIs(absl::StatusCode::kResourceExhausted)));
}

TEST_F(TaskRoomTest, APartForWhichThereIsNoMemoryIsRefusedWithTheFigures) {
  ASSERT_OK_AND_ASSIGN(MemoryBudget::Share rest,
                       memory_.Take("the rest", ByteCount(memory_.bytes_max() - 1)));
  const auto refused = StartOn("new-1", Key(1));
  EXPECT_THAT(
      refused->caller->end,
      Optional(StatusIs(absl::StatusCode::kResourceExhausted,
                        AllOf(HasSubstr(part_digest_.ToString()),
                              HasSubstr(absl::StrCat(memory_.bytes_max() - 1, " in use"))))));
  rest.reset();
  EXPECT_THAT(StartOn("new-1", Key(2))->caller->said, ElementsAre("accepted"));
  EXPECT_GT(memory_.used_bytes(), 0);
}

TEST_F(TaskRoomTest, AStartThatFailedForWantOfAWorkerMayBeTriedAgain) {
  executor_.RefuseStarts(absl::UnavailableError("no link to a worker"));
  const auto first = StartOn("new-1", Key(1));
  EXPECT_THAT(first->caller->end, Optional(StatusIs(absl::StatusCode::kUnavailable)));
  EXPECT_THAT(executor_.refused(), IsEmpty());
  executor_.RefuseStarts(absl::OkStatus());
  EXPECT_THAT(StartOn("new-1", Key(1))->caller->said, ElementsAre("accepted"));
}

TEST_F(TaskRoomTest, AWorkerThatLacksADestinationOnlySaysThatItMaySend) {
  const auto no_destination = StartOn("nowhere", Key(1));
  EXPECT_THAT(no_destination->caller->said, ElementsAre("refused as receiver"));
  EXPECT_THAT(no_destination->caller->end,
              Optional(StatusIs(absl::StatusCode::kFailedPrecondition)));
  v1::ExecuteRequest start = StartOf(Key(2));
  start.mutable_start()->set_source_storage("nowhere");
  const auto no_source = StartWith(start);
  EXPECT_THAT(no_source->caller->said, IsEmpty());
  EXPECT_THAT(no_source->caller->end, Optional(StatusIs(absl::StatusCode::kFailedPrecondition)));
  EXPECT_EQ(StatusOf("old", "a.0").readers, 0);
}

}  // namespace
}  // namespace crossmesh
