#include "worker/tasks/task_table.h"

#include "common/memory_protocol/storage_sequence.h"
#include "common/metrics/metric_names.h"
#include "common/metrics/testing/metric_value.h"
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

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::Pair;
using ::testing::SizeIs;

class TaskTableTest : public TaskFixture {
 protected:
  using TaskFixture::TaskFixture;

  static v1::ExecuteRequest Acknowledge() {
    v1::ExecuteRequest request;
    request.mutable_acknowledge();
    return request;
  }
};

TEST_F(TaskTableTest, AcceptsRunsCommitsAndForgets) {
  const auto call = Start(Key(1));
  EXPECT_THAT(call->caller->said, ElementsAre("accepted"));
  const TaskSpec& spec = executor_.spec(Key(1));
  EXPECT_EQ(spec.token_high, 0x3031323334353637);
  EXPECT_EQ(spec.token_low, 0x3839616263646566);
  EXPECT_THAT(spec.peers, IsEmpty());
  EXPECT_EQ(StatusOf("old", "a.0").readers, 1);
  EXPECT_TRUE(StatusOf("new", "b.0").writing);
  EXPECT_EQ(ValueOf(metrics_.metrics(), metric::kRelaysInProgress),
            6);  // two roots, and two receivers of each

  *spec.destinations.at(2).tensor.at(0) = std::byte{42};
  Finish(Key(1));
  EXPECT_THAT(call->caller->said, ElementsAre("accepted", "done 2 OK", "done 3 OK", "report OK"));
  EXPECT_EQ(call->caller->report.worker(), "w1");
  EXPECT_EQ(call->caller->report.attempt(), 1);
  EXPECT_EQ(FirstByte("new", "b.0"), std::byte{0});
  EXPECT_EQ(ValueOf(metrics_.metrics(), metric::kRelaysInProgress), 0);
  EXPECT_EQ(ValueOf(metrics_.metrics(), metric::kRelays), 6);

  Send(*call, ResolveOf({2, 3}, true));
  EXPECT_EQ(call->caller->said.back(), "resolved 2,3 OK");
  EXPECT_EQ(FirstByte("new", "b.0"), std::byte{42});
  EXPECT_EQ(StatusOf("new", "b.0").generation, 2);
  EXPECT_EQ(StatusOf("old", "a.0").readers, 1) << "other replicas may still want it";

  Send(*call, Acknowledge());
  EXPECT_THAT(call->caller->end, Optional(absl::OkStatus()));
  EXPECT_EQ(table_.size(), 0);
  EXPECT_EQ(StatusOf("old", "a.0").readers, 0);
  EXPECT_THAT(Rejections(), IsEmpty());
}

TEST_F(TaskTableTest, ControlAndDataAreTwoThreads) {
  FakeExecuteCall call(table_);
  control_->Start();
  data_->Start();
  const auto send = [&](const v1::ExecuteRequest& request) {
    ASSERT_TRUE(control_->RunAndWait([&] { call.call.OnRequest(request); }));
  };
  send(StartOf(Key(1)));
  send(PieceOf(0, part_bytes_.size(), true));
  ASSERT_TRUE(data_->RunAndWait([&] { executor_.FinishTask(Key(1)); }));
  send(ResolveOf({2, 3}, true));
  send(Acknowledge());
  control_->Stop();
  data_->Stop();
  EXPECT_THAT(call.caller->said, ElementsAre("need part", "accepted", "done 2 OK", "done 3 OK",
                                             "report OK", "resolved 2,3 OK"));
  EXPECT_THAT(call.caller->end, Optional(absl::OkStatus()));
}

TEST_F(TaskTableTest, APartTravelsOnce) {
  const auto first = Start(Key(1));
  Finish(Key(1));
  Send(*first, ResolveOf({2, 3}, true));
  FakeExecuteCall second(table_);
  Send(second, StartOf(Key(2)));
  EXPECT_THAT(second.caller->said, ElementsAre("accepted"));
}

TEST_F(TaskTableTest, RefusesAStaleEpoch) {
  const auto present = Start(Key(1, 5));
  const auto stale = Start(Key(2, 4));
  EXPECT_THAT(stale->caller->end, Optional(StatusIs(absl::StatusCode::kFailedPrecondition,
                                                    AllOf(HasSubstr("4"), HasSubstr("5")))));
  EXPECT_THAT(Rejections(), ElementsAre("stale_epoch"));
}

TEST_F(TaskTableTest, AStaleControllerCannotResolveWhatItStarted) {
  const auto old_call = Start(Key(1, 5));
  Finish(Key(1, 5));
  const auto new_call = Start(Key(2, 6));  // takes the destinations
  EXPECT_THAT(new_call->caller->said, ElementsAre("accepted"));
  Send(*old_call, ResolveOf({2, 3}, true));
  EXPECT_THAT(old_call->caller->end, Optional(StatusIs(absl::StatusCode::kFailedPrecondition)));
  EXPECT_EQ(StatusOf("new", "b.0").generation, 1);
}

TEST_F(TaskTableTest, AKeyWithOtherContentIsRefused) {
  const auto first = Start(Key(1));
  v1::ExecuteRequest other = StartOf(Key(1));
  other.mutable_start()->set_destination_storage("elsewhere");
  const auto second = StartWith(other);
  EXPECT_THAT(second->caller->end,
              Optional(StatusIs(absl::StatusCode::kAlreadyExists,
                                AllOf(HasSubstr("\"new\""), HasSubstr("\"elsewhere\"")))));
  EXPECT_THAT(Rejections(), ElementsAre("duplicate"));
  EXPECT_FALSE(first->caller->end.has_value());
}

TEST_F(TaskTableTest, MissingSourcesAndDestinationsAreNamed) {
  DeleteAllStorages();
  const auto no_source = Start(Key(1));
  EXPECT_THAT(no_source->caller->end,
              Optional(StatusIs(absl::StatusCode::kFailedPrecondition,
                                AllOf(HasSubstr("source storage \"old\" of device a.0"),
                                      HasSubstr("64 bytes"), HasSubstr("no such storage")))));
  MakeStorage("old", "a.0");
  MakeStorage("old", "a.1");
  const auto no_destination = Start(Key(2));
  EXPECT_THAT(no_destination->caller->end,
              Optional(StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr("destination storage \"new\" of device b.0"))));
  EXPECT_EQ(StatusOf("old", "a.0").readers, 0);
  EXPECT_EQ(table_.size(), 0);
  EXPECT_THAT(Rejections(), ElementsAre("invalid", "invalid"));
}

TEST_F(TaskTableTest, TheReportSaysThatAProcessHasUsedASourceMeanwhile) {
  ASSERT_OK_AND_ASSIGN(const StorageTable::Opened page, storages_.OpenSequence({"old", {"a", 0}}));
  const auto call = Start(Key(1));
  reinterpret_cast<StorageSequence*>(page.arena->bytes().data())->user = 2;
  Finish(Key(1));
  EXPECT_EQ(call->caller->said.back(), "report ABORTED");
  EXPECT_THAT(call->caller->report.message(),
              HasSubstr("storage \"old\" of device a.0 was used by a process that has its memory"));
}

TEST_F(TaskTableTest, WhatTheExecutorRefusesEndsTheCallAndFreesEverything) {
  executor_.RefuseStarts(absl::InvalidArgumentError("no such worker"));
  const auto call = Start(Key(1));
  EXPECT_THAT(call->caller->end, Optional(StatusIs(absl::StatusCode::kInvalidArgument)));
  EXPECT_EQ(table_.size(), 0);
  EXPECT_FALSE(StatusOf("new", "b.0").writing);
  EXPECT_EQ(ValueOf(metrics_.metrics(), metric::kRelaysInProgress), 0);
  EXPECT_THAT(Rejections(), ElementsAre("invalid"));
  EXPECT_THAT(executor_.refused(), ElementsAre(Key(1))) << "its peers may have sent for it";
}

TEST_F(TaskTableTest, ATaskOfAnotherWorkersDevicesIsRefused) {
  TaskTable other({.worker = "w2", .devices = {{"c", 0}}},
                  {.control = *control_,
                   .data = *data_,
                   .runner = executor_,
                   .storages = storages_,
                   .memory = memory_,
                   .clock = clock_,
                   .metrics = metrics_},
                  EpochFence());
  FakeExecuteCall call(other);
  Send(call, StartOf(Key(1)));
  Send(call, PieceOf(0, part_bytes_.size(), true));
  EXPECT_THAT(call.caller->end, Optional(StatusIs(absl::StatusCode::kInvalidArgument,
                                                  AllOf(HasSubstr("a.0"), HasSubstr("w2")))));
}

TEST_F(TaskTableTest, CancelAndLostPeersReachTheExecutor) {
  const auto call = Start(Key(1));
  v1::ExecuteRequest cancel;
  cancel.mutable_cancel()->set_reason("no longer wanted");
  Send(*call, cancel);
  ASSERT_THAT(executor_.cancelled(), SizeIs(1));
  EXPECT_EQ(executor_.cancelled()[0].first, Key(1));
  EXPECT_THAT(executor_.cancelled()[0].second,
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("no longer wanted")));
  v1::ExecuteRequest lost;
  lost.mutable_peer_lost()->set_worker("w7");
  Send(*call, lost);
  EXPECT_THAT(executor_.lost(), ElementsAre(Pair(Key(1), "w7")));
}

TEST_F(TaskTableTest, WhatIsRefusedForGoodIsToldToTheExecutor) {
  const auto present = Start(Key(1, 5, 2));
  const auto stale_epoch = Start(Key(2, 4));
  const auto stale_attempt = Start(Key(1, 5, 1));
  v1::ExecuteRequest start = StartOf(Key(3, 5));
  start.mutable_start()->set_source_storage("nowhere");
  const auto invalid = StartWith(start);
  table_.Drain([] {});
  const auto drained = Start(Key(4, 5));
  EXPECT_THAT(executor_.refused(), ElementsAre(Key(2, 4), Key(1, 5, 1), Key(3, 5), Key(4, 5)));
}

TEST_F(TaskTableTest, WhatIsNotResolvedIsAbandonedAfterDeadlineAndGrace) {
  const auto call = Start(Key(1));
  call->call.OnGone();
  Finish(Key(1));
  Advance(absl::Seconds(89));
  EXPECT_TRUE(StatusOf("new", "b.0").writing);
  Advance(absl::Seconds(1));
  EXPECT_FALSE(StatusOf("new", "b.0").writing);
  EXPECT_EQ(StatusOf("new", "b.0").generation, 1);

  const auto late = Start(Key(1));
  EXPECT_EQ(late->caller->said.back(), "report OK");
  Send(*late, ResolveOf({2}, true));
  EXPECT_EQ(late->caller->said.back(), "resolved 2 FAILED_PRECONDITION");
}

TEST_F(TaskTableTest, AReportIsKeptForAnHour) {
  const auto call = Start(Key(1));
  call->call.OnGone();
  Finish(Key(1));
  Advance(absl::Hours(1) - absl::Seconds(1));
  EXPECT_EQ(table_.size(), 1);
  Advance(absl::Seconds(1));
  EXPECT_EQ(table_.size(), 0);
  EXPECT_EQ(StatusOf("old", "a.0").readers, 0);
}

TEST_F(TaskTableTest, ACallerThatIsThereIsNotHurried) {
  const auto call = Start(Key(1));
  Finish(Key(1));
  Advance(absl::Hours(2));
  Send(*call, ResolveOf({2, 3}, true));
  EXPECT_EQ(call->caller->said.back(), "resolved 2,3 OK");
}

TEST_F(TaskTableTest, AHigherEpochOfTheSameOperationTakesItsPlace) {
  const auto old_call = Start(Key(1, 5));
  const auto next = Start(Key(1, 6));
  EXPECT_THAT(old_call->caller->end,
              Optional(StatusIs(absl::StatusCode::kAborted, HasSubstr("6"))));
  ASSERT_THAT(executor_.cancelled(), SizeIs(1));
  EXPECT_THAT(next->caller->said, IsEmpty()) << "the old task can still write the destination";
  Finish(Key(1, 5), absl::AbortedError("superseded"));
  EXPECT_EQ(table_.size(), 1);
  EXPECT_THAT(next->caller->said, ElementsAre("accepted"));
}

TEST_F(TaskTableTest, AnAttemptThatIsOverIsRefused) {
  const auto first = Start(Key(1, 1, 1));
  Finish(Key(1, 1, 1), absl::UnavailableError("a peer is lost"));
  Send(*first, ResolveOf({2, 3}, false));
  const auto second = Start(Key(1, 1, 2));
  EXPECT_THAT(second->caller->said, ElementsAre("accepted"));
  EXPECT_EQ(StatusOf("old", "a.0").readers, 2);
  Send(*first, Acknowledge());
  const auto again = Start(Key(1, 1, 1));
  EXPECT_THAT(again->caller->end,
              Optional(StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("attempt 2"))));
}

TEST_F(TaskTableTest, AcknowledgingARunningTaskCancelsAndForgetsIt) {
  const auto call = Start(Key(1));
  Send(*call, Acknowledge());
  EXPECT_THAT(call->caller->end, Optional(absl::OkStatus()));
  ASSERT_THAT(executor_.cancelled(), SizeIs(1));
  EXPECT_TRUE(StatusOf("new", "b.0").writing);
  Finish(Key(1), absl::CancelledError("acknowledged"));
  EXPECT_EQ(table_.size(), 0);
  EXPECT_FALSE(StatusOf("new", "b.0").writing);
}

TEST_F(TaskTableTest, TellsTheProgressOfWhatRuns) {
  const auto call = Start(Key(1));
  executor_.SetMovedBytes(17);
  std::vector<TaskTable::Progress> seen;
  table_.CollectProgress([&](std::vector<TaskTable::Progress> tasks) { seen = std::move(tasks); });
  RunLoops();
  ASSERT_THAT(seen, SizeIs(1));
  EXPECT_EQ(seen[0].operation_id, "op-1");
  EXPECT_EQ(seen[0].attempt, 1);
  EXPECT_EQ(seen[0].moved_bytes, 17);
  Finish(Key(1));
  table_.CollectProgress([&](std::vector<TaskTable::Progress> tasks) { seen = std::move(tasks); });
  RunLoops();
  EXPECT_THAT(seen, IsEmpty());
}

TEST_F(TaskTableTest, DrainsWhenWhatRunsIsAcknowledged) {
  const auto call = Start(Key(1));
  bool idle = false;
  table_.Drain([&] { idle = true; });
  const auto refused = Start(Key(2));
  EXPECT_THAT(refused->caller->end,
              Optional(StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("w1"))));
  EXPECT_THAT(Rejections(), ElementsAre("busy"));
  Finish(Key(1));
  EXPECT_FALSE(idle);
  Send(*call, ResolveOf({2, 3}, true));
  Send(*call, Acknowledge());
  EXPECT_TRUE(idle);
}

TEST_F(TaskTableTest, DrainDoesNotWaitForACallerThatIsGone) {
  const auto call = Start(Key(1));
  Finish(Key(1));
  bool idle = false;
  table_.Drain([&] { idle = true; });
  EXPECT_FALSE(idle);
  call->call.OnGone();
  EXPECT_TRUE(idle);
}

TEST_F(TaskTableTest, WhenAllIsCancelledADrainWaitsForTheTasksOnly) {
  const auto call = Start(Key(1));
  bool idle = false;
  table_.Drain([&] { idle = true; });
  table_.CancelAll(absl::CancelledError("the worker stops"));
  RunLoops();
  EXPECT_THAT(executor_.cancelled(), SizeIs(1));
  EXPECT_FALSE(idle);
  Finish(Key(1), absl::CancelledError("the worker stops"));
  EXPECT_TRUE(idle);
}

class SmallTaskTableTest : public TaskTableTest {
 protected:
  SmallTaskTableTest() : TaskTableTest({.tasks_max = 1}) {}
};

TEST_F(SmallTaskTableTest, MakesRoomByForgettingATaskThatHasEndedAndHasNoCaller) {
  const auto first = Start(Key(1));
  const auto refused = Start(Key(2));
  EXPECT_THAT(refused->caller->end, Optional(StatusIs(absl::StatusCode::kResourceExhausted)));
  Finish(Key(1));
  first->call.OnGone();
  const auto second = Start(Key(3));
  EXPECT_THAT(second->caller->said, ElementsAre("accepted"));
  EXPECT_EQ(table_.size(), 1);
}

class InPlaceTaskTableTest : public TaskTableTest {
 protected:
  InPlaceTaskTableTest() : TaskTableTest({}, BindingMode::kInPlace) {}
};

TEST_F(InPlaceTaskTableTest, AStartThatIsRefusedLeavesDestinationsReady) {
  ASSERT_OK(storages_.Delete({"new", {"b", 1}}));
  const auto no_memory = Start(Key(1));  // for b.1, when b.0 is leased already
  EXPECT_THAT(no_memory->caller->end, Optional(StatusIs(absl::StatusCode::kFailedPrecondition)));
  EXPECT_EQ(StatusOf("new", "b.0").state, StorageState::kReady);

  MakeStorage("new", "b.1");
  v1::ExecuteRequest bad_peer = StartOf(Key(2));
  v1::ExecuteRequest::Peer& peer = *bad_peer.mutable_start()->add_peers();
  peer.set_worker("w2");
  peer.add_devices(99);
  EXPECT_THAT(StartWith(bad_peer)->caller->end,
              Optional(StatusIs(absl::StatusCode::kInvalidArgument)));
  EXPECT_EQ(StatusOf("new", "b.0").state, StorageState::kReady);

  executor_.RefuseStarts(absl::UnavailableError("no link to a worker"));
  EXPECT_THAT(Start(Key(3))->caller->end, Optional(StatusIs(absl::StatusCode::kUnavailable)));
  EXPECT_EQ(StatusOf("new", "b.0").state, StorageState::kReady);
  EXPECT_OK(storages_.LeaseForReading({"new", {"b", 0}}, kStorageBytes));
}

TEST_F(InPlaceTaskTableTest, StaysDirtyWhenItIsAbandonedAndIsMendedByTheNextCommit) {
  const auto call = Start(Key(1));
  EXPECT_EQ(StatusOf("new", "b.0").state, StorageState::kDirty);
  Finish(Key(1), absl::UnavailableError("a peer is lost"));
  Send(*call, ResolveOf({2, 3}, false));
  EXPECT_EQ(StatusOf("new", "b.0").state, StorageState::kDirty);

  const auto again = Start(Key(2));
  Finish(Key(2));
  Send(*again, ResolveOf({2, 3}, true));
  EXPECT_EQ(again->caller->said.back(), "resolved 2,3 OK");
  EXPECT_EQ(StatusOf("new", "b.0").state, StorageState::kReady);
}

}  // namespace
}  // namespace crossmesh
