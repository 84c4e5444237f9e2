#include "controller/dispatch/running_operation.h"

#include "common/testing/status_matchers.h"
#include "common/wire/time_codec.h"
#include "controller/dispatch/task_connection.h"
#include "controller/dispatch/testing/fake_gateway.h"
#include "controller/dispatch/testing/running_operation_fixture.h"

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

TEST_F(RunningOperationTest, AnOperationCommitsWhenEveryWorkerDoesItsPart) {
  Start(Request("op-1"));
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_PREPARING);
  EXPECT_EQ(sink_.intents, 1);
  const std::vector<std::string> hosts = Hosts();
  EXPECT_THAT(hosts, Contains("c"));
  EXPECT_THAT(hosts, Contains("d"));
  EXPECT_EQ(At("c").start.epoch(), 7);
  EXPECT_EQ(At("c").start.source_storage(), "s");
  AcceptAll();
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_RUNNING);
  for (const std::string& host : hosts) Succeed(host);
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_VERIFYING);
  EXPECT_THAT(At("c").heard, ElementsAre(HasSubstr("commit")));
  Resolve("c");
  EXPECT_EQ(Latest("op-1").replicas(0).state(), v1::REPLICA_STATE_COMMITTED);
  Resolve("d");
  const v1::Operation& last = Latest("op-1");
  EXPECT_EQ(last.state(), v1::OPERATION_STATE_COMMITTED);
  EXPECT_OK(ErrorOf(last));
  ASSERT_TRUE(last.has_report());
  EXPECT_EQ(last.report().destination_bytes(), 2 * 16 * 4 * 4);
  EXPECT_EQ(last.moved_bytes(), last.report().destination_bytes());
  for (const std::string& host : hosts) EXPECT_EQ(At(host).heard.back(), "ack") << host;
  EXPECT_EQ(running_.running(), 0);
}

TEST_F(RunningOperationTest, ACachedPlanIsNeitherPlannedNorCutAgain) {
  ASSERT_OK_AND_ASSIGN(const auto planned,
                       PlannedReshard::Create({.tensors = tensors_}, {}, clock_));
  std::set<std::shared_ptr<const PlannedReshard::Parts>> parts;
  for (const char* id : {"op-1", "op-2"}) {
    OperationRequest request = Request(id);
    request.planned = planned;
    Start(std::move(request));
    FinishAll(id);
    EXPECT_TRUE(Latest(id).report().plan_cached());
    parts.insert(planned->FindParts({{{"a", 0}}, {{"b", 0}}, {{"c", 0}}, {{"d", 0}}}));
  }
  EXPECT_EQ(planned_, 0);
  EXPECT_EQ(parts.size(), 1u);
}

TEST_F(RunningOperationTest, APlanThatFailsFailsTheOperationWithItsError) {
  OperationRequest request = Request("op-1");
  request.plan = [](auto done) { done(absl::InvalidArgumentError("tensor x: no rule matches")); };
  Start(std::move(request));
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_FAILED);
  EXPECT_THAT(ErrorOf(Latest("op-1")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tensor x")));
  EXPECT_THAT(gateway_.calls, IsEmpty());
  EXPECT_EQ(sink_.intents, 0);
}

TEST_F(RunningOperationTest, PlannersWorkForTheClientOfTheRequest) {
  OperationRequest request = Request("op-1");
  request.client = "ipv4:192.0.2.1:77";
  Start(std::move(request));
  EXPECT_THAT(planners_.clients(), ElementsAre("ipv4:192.0.2.1:77", "ipv4:192.0.2.1:77"))
      << "to plan and to cut";
}

TEST_F(RunningOperationTest, AFullPlannerFailsTheOperation) {
  planners_.Refuse();
  Start(Request("op-1"));
  EXPECT_THAT(ErrorOf(Latest("op-1")), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(RunningOperationTest, AWorkerThatIsNotThereFailsTheOperationBeforeAnythingStarts) {
  EndSession("d");
  Start(Request("op-1"));
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_FAILED);
  EXPECT_THAT(ErrorOf(Latest("op-1")),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("d.0")));
  EXPECT_THAT(gateway_.calls, IsEmpty());
}

TEST_F(RunningOperationTest, AWorkerThatMayComeBackIsAwaited) {
  EndSession("d");
  registry_.AwaitReturns(absl::Seconds(10));
  Start(Request("op-1"));
  Advance(absl::Seconds(3));
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_PREPARING);
  EXPECT_THAT(gateway_.calls, IsEmpty());
  Join("d");
  Advance(RunningOperation::kLookPause);
  FinishAll("op-1");
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_COMMITTED);
  EXPECT_EQ(planned_, 1);
}

TEST_F(RunningOperationTest, AWorkerThatDoesNotComeBackInTimeFailsTheOperation) {
  EndSession("d");
  registry_.AwaitReturns(absl::Seconds(10));
  Start(Request("op-1"));
  Advance(absl::Seconds(10));
  EXPECT_THAT(ErrorOf(Latest("op-1")),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("d.0")));
  EXPECT_EQ(running_.running(), 0);
}

TEST_F(RunningOperationTest, AnOperationThatAwaitsWorkersCanBeCancelledAndHasItsDeadline) {
  EndSession("d");
  registry_.AwaitReturns(absl::Seconds(10));
  Start(Request("op-1"));
  Cancel("op-1", "not needed");
  Run();
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_CANCELLED);
  OperationRequest late = Request("op-2");
  late.deadline = absl::Seconds(2);
  Start(std::move(late));
  Advance(absl::Seconds(2));
  EXPECT_THAT(ErrorOf(Latest("op-2")), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(running_.running(), 0);
  EXPECT_EQ(queue_.timers(), 0);
}

TEST_F(RunningOperationTest, ALinkThatAWorkerBlamesIsRememberedUnlessItWasToldOfALoss) {
  Start(Request("op-1"));
  AcceptAll();
  EndSession("b");
  FailAsUnavailable("d", "b");
  EXPECT_THAT(registry_.FailedHostLinks(), IsEmpty());
  FailAsUnavailable("c", "a");
  EXPECT_EQ(registry_.FailedHostLinks(), (WorkerRegistry::HostLinks{{"a", "c"}, {"c", "a"}}));
}

TEST_F(RunningOperationTest, AnOperationThatCommitsShowsWhichLinksWork) {
  registry_.LinkFailed("w-a", "w-c", "no bytes");
  registry_.LinkFailed("w-a", "w-d", "no bytes");
  Start(Request("op-1"));
  AcceptAll();
  v1::ExecuteResponse report;
  v1::TaskReport::Link& link = *report.mutable_report()->add_links();
  link.set_peer("w-c");
  link.set_sent_bytes(1);
  At("a").listener.on_message(report);
  Run();
  for (const char* host : {"b", "c", "d"}) Succeed(host);
  EXPECT_EQ(registry_.FailedHostLinks().size(), 4);
  ResolveAll();
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_COMMITTED);
  EXPECT_EQ(registry_.FailedHostLinks(), (WorkerRegistry::HostLinks{{"a", "d"}, {"d", "a"}}));
}

TEST_F(RunningOperationTest, AnIntentThatCannotBeCommittedStartsNothing) {
  sink_.intent_result = absl::AbortedError("epoch 7 is fenced");
  Start(Request("op-1"));
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_FAILED);
  EXPECT_THAT(ErrorOf(Latest("op-1")), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(gateway_.calls, IsEmpty());
}

TEST_F(RunningOperationTest, ALostReceiverFailsItsReplicaAndTheOtherCommits) {
  Start(Request("op-1"));
  AcceptAll();
  LoseWorker("d");
  EXPECT_EQ(Latest("op-1").replicas(1).state(), v1::REPLICA_STATE_FAILED);
  EXPECT_THAT(Latest("op-1").replicas(1).error(), HasSubstr("w-d"));
  EXPECT_THAT(At("c").heard, Contains("lost w-d"));
  for (const std::string& host : Hosts()) {
    if (host != "d") Succeed(host);
  }
  Resolve("c");
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_PARTIAL);
  // Should the lost worker hear us after all, it stops.
  EXPECT_THAT(At("d").heard.back(), HasSubstr("cancel"));
}

TEST_F(RunningOperationTest, WhatCameThroughALostSourceIsPlannedAgainFromTheOther) {
  Start(Request("op-1"));
  const std::vector<std::string> first = Hosts();
  AcceptAll();
  // Whichever source the plan chose for the first copy is lost.
  const std::string lost = Called("a") ? "a" : "b";
  LoseWorker(lost);
  for (const std::string& host : first) {
    if (host == "a" || host == "b") {
      if (host != lost) Succeed(host);
    } else {
      FailAsUnavailable(host, lost);
    }
  }
  ResolveAll();
  EXPECT_EQ(Latest("op-1").attempt(), 2);
  ASSERT_EQ(gateway_.calls.back()->start.attempt(), 2);
  const std::vector<std::string> second = Hosts();
  EXPECT_THAT(second, Not(Contains(lost)));
  EXPECT_THAT(second, Contains(lost == "a" ? "b" : "a"));
  FinishAll("op-1");
  EXPECT_THAT(Latest("op-1").error(), HasSubstr(absl::StrCat("w-", lost)));
}

TEST_F(RunningOperationTest, TheLossOfEverySourceFailsWhatIsLeft) {
  Start(Request("op-1"));
  const std::vector<std::string> first = Hosts();
  AcceptAll();
  LoseWorker("a");
  LoseWorker("b");
  for (const char* host : {"c", "d"}) FailAsUnavailable(host, "a");
  ResolveAll();
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_FAILED);
  EXPECT_EQ(running_.running(), 0);
}

TEST_F(RunningOperationTest, ACallThatBreaksIsMadeAgainAndWhatWasNotAnsweredIsSaidAgain) {
  Start(Request("op-1"));
  AcceptAll();
  for (const std::string& host : Hosts()) Succeed(host);
  ASSERT_THAT(At("c").heard, ElementsAre(HasSubstr("commit")));
  const size_t calls = gateway_.calls.size();
  FakeTaskCall& broken = At("c");
  broken.End(absl::UnavailableError("connection reset"));
  Run();
  EXPECT_THAT(gateway_.calls, SizeIs(calls));
  Advance(TaskConnection::kFirstPause);
  ASSERT_THAT(gateway_.calls, SizeIs(calls + 1));
  EXPECT_NE(&At("c"), &broken);
  EXPECT_EQ(At("c").start.SerializeAsString(), broken.start.SerializeAsString());
  EXPECT_THAT(At("c").heard, ElementsAre(HasSubstr("commit")));
  // The worker says everything again.
  At("c").Accept();
  Succeed("c");
  ResolveAll();
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_COMMITTED);
}

TEST_F(RunningOperationTest, AWorkerThatCannotBeReachedIsLostToTheOperation) {
  Start(Request("op-1"));
  AcceptAll();
  for (int i = 0; i < TaskConnection::kBrokenCallsMax; ++i) {
    At("d").End(absl::UnavailableError("no route"));
    Run();
    Advance(TaskConnection::kPauseMax);
  }
  EXPECT_EQ(Latest("op-1").replicas(1).state(), v1::REPLICA_STATE_FAILED);
  EXPECT_THAT(Latest("op-1").replicas(1).error(), HasSubstr("no route"));
}

// The next controller has not reached them yet: they would give up what it is about to take up.
TEST_F(RunningOperationTest, WhenTheNextControllerHasATaskNobodyIsToldThatItsWorkerIsLost) {
  Start(Request("op-1"));
  AcceptAll();
  At("a").End(absl::AbortedError("another call has taken over the task"));
  Run();
  Advance(TaskConnection::kPauseMax);
  for (const std::string& host : Hosts()) EXPECT_THAT(At(host).heard, IsEmpty()) << host;
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_RUNNING);
}

TEST_F(RunningOperationTest, ARefusalFailsTheWorkersReplica) {
  Start(Request("op-1"));
  for (const std::string& host : Hosts()) {
    if (host != "d") At(host).Accept();
  }
  At("d").End(absl::FailedPreconditionError("storage t: not there"));
  Run();
  EXPECT_EQ(Latest("op-1").replicas(1).state(), v1::REPLICA_STATE_FAILED);
  EXPECT_THAT(ErrorOf(Latest("op-1")),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("storage t")));
}

TEST_F(RunningOperationTest, CancelStopsTheTasksAndAbandonsTheirDestinations) {
  Start(Request("op-1"));
  AcceptAll();
  Cancel("op-1", "not needed");
  Run();
  for (const std::string& host : Hosts()) {
    EXPECT_THAT(At(host).heard, Contains(HasSubstr("cancel"))) << host;
    At(host).Report(absl::CancelledError("cancelled"));
    Run();
  }
  EXPECT_THAT(At("c").heard, Contains(HasSubstr("abandon")));
  ResolveAll();
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_CANCELLED);
  EXPECT_THAT(Latest("op-1").error(), HasSubstr("not needed"));
}

TEST_F(RunningOperationTest, CancelWhileThePlanIsMadeEndsTheOperationAtOnce) {
  ASSERT_OK(running_.Start(Request("op-1")));
  queue_.Run();
  Cancel("op-1", "changed my mind");
  queue_.Run();
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_CANCELLED);
  Run();  // the plan comes too late
  EXPECT_THAT(gateway_.calls, IsEmpty());
  EXPECT_EQ(running_.running(), 0);
}

TEST_F(RunningOperationTest, TheDeadlineEndsTheOperationEvenWhenNoWorkerAnswers) {
  OperationRequest request = Request("op-1");
  request.deadline = absl::Seconds(3);
  Start(std::move(request));
  AcceptAll();
  EXPECT_THAT(FromProto(At("c").start.deadline()), IsOkAndHolds(absl::Seconds(3)));
  Advance(absl::Seconds(3));
  EXPECT_THAT(At("c").heard, Contains(HasSubstr("cancel")));
  EXPECT_EQ(running_.running(), 1);
  Advance(RunningOperation::kEndingGrace);
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_FAILED);
  EXPECT_THAT(ErrorOf(Latest("op-1")), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(running_.running(), 0);
}

TEST_F(RunningOperationTest, AnOperationWithoutADeadlineGetsOneFromThePrediction) {
  Start(Request("op-1"));
  EXPECT_GE(*FromProto(Latest("op-1").deadline()), absl::Seconds(30));
  EXPECT_LT(*FromProto(Latest("op-1").deadline()), absl::Seconds(31));
}

TEST_F(RunningOperationTest, ProgressIsToldAtMostOnceInAnInterval) {
  Start(Request("op-1"));
  AcceptAll();
  const int64_t before = Latest("op-1").revision();
  for (int64_t bytes = 1; bytes <= 100; ++bytes) {
    Progress("op-1", {.worker = "w-c", .moved_bytes = bytes});
  }
  Run();
  Advance(RunningOperation::kProgressInterval);
  EXPECT_EQ(Latest("op-1").moved_bytes(), 100);
  EXPECT_EQ(Latest("op-1").revision(), before + 1);
  Progress("op-1", {.worker = "x", .attempt = 9, .moved_bytes = 5});
  Progress("op-9", {.worker = "w-c", .moved_bytes = 5});
  Run();
  Advance(RunningOperation::kProgressInterval);
  EXPECT_EQ(Latest("op-1").moved_bytes(), 100);
}

TEST_F(RunningOperationTest, NothingIsLeftOfAnOperationThatHasEnded) {
  Start(Request("op-1"));
  FinishAll("op-1");
  for (const auto& call : gateway_.calls) call->End(absl::OkStatus());
  Run();
  for (const auto& call : gateway_.calls) EXPECT_TRUE(call->dropped) << call->address;
  EXPECT_EQ(queue_.timers(), 0);
}

TEST_F(RunningOperationTest, TooManyOperationsAreRefused) {
  for (int64_t i = 0; i < RunningOperation::kRunsMax; ++i) {
    ASSERT_OK(running_.Start(Request(absl::StrCat("op-", i))));
  }
  EXPECT_THAT(running_.Start(Request("one-more")), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(RunningOperationTest, AReplicaThatNoPlanCanServeFailsBeforeAllTasksHaveEnded) {
  Start(Request("op-1"));
  AcceptAll();
  LoseWorker("a");
  LoseWorker("b");
  FailAsUnavailable("c", "a");
  const v1::Operation& now = Latest("op-1");
  EXPECT_EQ(now.replicas(0).state(), v1::REPLICA_STATE_FAILED);
  EXPECT_THAT(now.replicas(0).error(), HasSubstr("planned without worker w-a"));
  // Its bytes may all have come.
  EXPECT_EQ(now.replicas(1).state(), v1::REPLICA_STATE_RECEIVING);
  Succeed("d");
  Resolve("d");
  Resolve("c");
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_PARTIAL);
}

}  // namespace
}  // namespace crossmesh
