#include "controller/dispatch/operation_runner.h"

#include "common/testing/status_matchers.h"
#include "controller/dispatch/testing/fake_worker_gateway.h"
#include "controller/dispatch/testing/operation_runner_fixture.h"

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

TEST_F(OperationRunnerTest, AnOperationCommitsWhenEveryWorkerDoesItsPart) {
  Start(Request("op-1"));
  EXPECT_EQ(Latest("op-1").state, OperationState::kPreparing);
  EXPECT_EQ(sink_.intents, 1);
  const std::vector<std::string> hosts = Hosts();
  EXPECT_THAT(hosts, Contains("c"));
  EXPECT_THAT(hosts, Contains("d"));
  EXPECT_EQ(At("c").start.epoch, 7);
  EXPECT_EQ(At("c").start.source_storage, "s");
  AcceptAll();
  EXPECT_EQ(Latest("op-1").state, OperationState::kRunning);
  for (const std::string& host : hosts) Succeed(host);
  EXPECT_EQ(Latest("op-1").state, OperationState::kVerifying);
  EXPECT_THAT(At("c").heard, ElementsAre(HasSubstr("commit")));
  Resolve("c");
  EXPECT_EQ(Latest("op-1").replicas[0].state, ReplicaState::kCommitted);
  Resolve("d");
  const OperationSnapshot& last = Latest("op-1");
  EXPECT_EQ(last.state, OperationState::kCommitted);
  EXPECT_OK(last.error);
  ASSERT_TRUE(last.report.has_value());
  EXPECT_EQ(last.report->destination_bytes, 2 * 16 * 4 * 4);
  EXPECT_EQ(last.moved_bytes, last.report->destination_bytes);
  for (const std::string& host : hosts) EXPECT_EQ(At(host).heard.back(), "ack") << host;
  EXPECT_EQ(runner_.running(), 0);
}

TEST_F(OperationRunnerTest, ACachedPlanIsNeitherPlannedNorCutAgain) {
  ASSERT_OK_AND_ASSIGN(const auto planned,
                       PlannedReshard::Create({.tensors = tensors_}, {}, clock_));
  for (const char* id : {"op-1", "op-2"}) {
    OperationRequest request = Request(id);
    request.planned = planned;
    Start(std::move(request));
    AcceptAll();
    for (const std::string& host : Hosts()) Succeed(host);
    Resolve("c");
    Resolve("d");
    EXPECT_EQ(Latest(id).state, OperationState::kCommitted);
    EXPECT_TRUE(Latest(id).report->plan_cached);
  }
  EXPECT_EQ(planned_, 0);
  const auto& calls = gateway_.calls;
  EXPECT_EQ(calls.front()->start.part, calls[calls.size() / 2]->start.part);
}

TEST_F(OperationRunnerTest, APlanThatFailsFailsTheOperationWithItsError) {
  OperationRequest request = Request("op-1");
  request.plan = [] { return absl::InvalidArgumentError("tensor x: no rule matches"); };
  Start(std::move(request));
  EXPECT_EQ(Latest("op-1").state, OperationState::kFailed);
  EXPECT_THAT(Latest("op-1").error,
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tensor x")));
  EXPECT_THAT(gateway_.calls, IsEmpty());
  EXPECT_EQ(sink_.intents, 0);
}

TEST_F(OperationRunnerTest, AFullPlannerFailsTheOperation) {
  planners_.Refuse();
  Start(Request("op-1"));
  EXPECT_THAT(Latest("op-1").error, StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(OperationRunnerTest, AWorkerThatIsNotThereFailsTheOperationBeforeAnythingStarts) {
  registry_.SessionEnded("w-d", 4, true);
  Start(Request("op-1"));
  EXPECT_EQ(Latest("op-1").state, OperationState::kFailed);
  EXPECT_THAT(Latest("op-1").error,
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("d.0")));
  EXPECT_THAT(gateway_.calls, IsEmpty());
}

TEST_F(OperationRunnerTest, AnIntentThatCannotBeCommittedStartsNothing) {
  sink_.intent_result = absl::AbortedError("epoch 7 is fenced");
  Start(Request("op-1"));
  EXPECT_EQ(Latest("op-1").state, OperationState::kFailed);
  EXPECT_THAT(Latest("op-1").error, StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(gateway_.calls, IsEmpty());
}

TEST_F(OperationRunnerTest, ALostReceiverFailsItsReplicaAndTheOtherCommits) {
  Start(Request("op-1"));
  AcceptAll();
  LoseWorker("d");
  EXPECT_EQ(Latest("op-1").replicas[1].state, ReplicaState::kFailed);
  EXPECT_THAT(Latest("op-1").replicas[1].error.message(), HasSubstr("w-d"));
  EXPECT_THAT(At("c").heard, Contains("lost w-d"));
  for (const std::string& host : Hosts()) {
    if (host != "d") Succeed(host);
  }
  Resolve("c");
  EXPECT_EQ(Latest("op-1").state, OperationState::kPartial);
  // Should the lost worker hear us after all, it stops.
  EXPECT_THAT(At("d").heard.back(), HasSubstr("cancel"));
}

TEST_F(OperationRunnerTest, WhatCameThroughALostSourceIsPlannedAgainFromTheOther) {
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
  for (const char* host : {"c", "d"}) Resolve(host);
  EXPECT_EQ(Latest("op-1").attempt, 2);
  ASSERT_EQ(gateway_.calls.back()->start.attempt, 2);
  const std::vector<std::string> second = Hosts();
  EXPECT_THAT(second, Not(Contains(lost)));
  EXPECT_THAT(second, Contains(lost == "a" ? "b" : "a"));
  AcceptAll();
  for (const std::string& host : second) Succeed(host);
  for (const char* host : {"c", "d"}) Resolve(host);
  EXPECT_EQ(Latest("op-1").state, OperationState::kCommitted);
  EXPECT_THAT(Latest("op-1").error.message(), HasSubstr(absl::StrCat("w-", lost)));
}

TEST_F(OperationRunnerTest, TheLossOfEverySourceFailsWhatIsLeft) {
  Start(Request("op-1"));
  const std::vector<std::string> first = Hosts();
  AcceptAll();
  LoseWorker("a");
  LoseWorker("b");
  for (const char* host : {"c", "d"}) FailAsUnavailable(host, "a");
  for (const char* host : {"c", "d"}) Resolve(host);
  EXPECT_EQ(Latest("op-1").state, OperationState::kFailed);
  EXPECT_EQ(runner_.running(), 0);
}

TEST_F(OperationRunnerTest, ACallThatBreaksIsMadeAgainAndWhatWasNotAnsweredIsSaidAgain) {
  Start(Request("op-1"));
  AcceptAll();
  for (const std::string& host : Hosts()) Succeed(host);
  ASSERT_THAT(At("c").heard, ElementsAre(HasSubstr("commit")));
  const size_t calls = gateway_.calls.size();
  FakeWorkerGateway::Call& broken = At("c");
  broken.End(absl::UnavailableError("connection reset"));
  Run();
  EXPECT_THAT(gateway_.calls, SizeIs(calls));
  Advance(TaskConnection::kFirstPause);
  ASSERT_THAT(gateway_.calls, SizeIs(calls + 1));
  EXPECT_NE(&At("c"), &broken);
  EXPECT_EQ(At("c").start.deadline, broken.start.deadline);
  EXPECT_THAT(At("c").heard, ElementsAre(HasSubstr("commit")));
  // The worker says everything again.
  At("c").Accept();
  Succeed("c");
  Resolve("c");
  Resolve("d");
  EXPECT_EQ(Latest("op-1").state, OperationState::kCommitted);
}

TEST_F(OperationRunnerTest, AWorkerThatCannotBeReachedIsLostToTheOperation) {
  Start(Request("op-1"));
  AcceptAll();
  for (int i = 0; i < TaskConnection::kBrokenCallsMax; ++i) {
    At("d").End(absl::UnavailableError("no route"));
    Run();
    Advance(TaskConnection::kPauseMax);
  }
  EXPECT_EQ(Latest("op-1").replicas[1].state, ReplicaState::kFailed);
  EXPECT_THAT(Latest("op-1").replicas[1].error.message(), HasSubstr("no route"));
}

TEST_F(OperationRunnerTest, ARefusalFailsTheWorkersReplica) {
  Start(Request("op-1"));
  for (const std::string& host : Hosts()) {
    if (host != "d") At(host).Accept();
  }
  At("d").End(absl::FailedPreconditionError("storage t: not there"));
  Run();
  EXPECT_EQ(Latest("op-1").replicas[1].state, ReplicaState::kFailed);
  EXPECT_THAT(Latest("op-1").error,
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("storage t")));
}

TEST_F(OperationRunnerTest, CancelStopsTheTasksAndAbandonsTheirDestinations) {
  Start(Request("op-1"));
  AcceptAll();
  runner_.Cancel("op-1", "not needed");
  Run();
  for (const std::string& host : Hosts()) {
    EXPECT_THAT(At(host).heard, Contains(HasSubstr("cancel"))) << host;
    At(host).Report(absl::CancelledError("cancelled"));
    Run();
  }
  EXPECT_THAT(At("c").heard, Contains(HasSubstr("abandon")));
  Resolve("c");
  Resolve("d");
  EXPECT_EQ(Latest("op-1").state, OperationState::kCancelled);
  EXPECT_THAT(Latest("op-1").error.message(), HasSubstr("not needed"));
}

TEST_F(OperationRunnerTest, CancelWhileThePlanIsMadeEndsTheOperationAtOnce) {
  ASSERT_OK(runner_.Start(Request("op-1")));
  queue_.Run();
  runner_.Cancel("op-1", "changed my mind");
  queue_.Run();
  EXPECT_EQ(Latest("op-1").state, OperationState::kCancelled);
  Run();  // the plan comes too late
  EXPECT_THAT(gateway_.calls, IsEmpty());
  EXPECT_EQ(runner_.running(), 0);
}

TEST_F(OperationRunnerTest, TheDeadlineEndsTheOperationEvenWhenNobodyAnswers) {
  OperationRequest request = Request("op-1");
  request.deadline = absl::Seconds(3);
  Start(std::move(request));
  AcceptAll();
  EXPECT_EQ(At("c").start.deadline, absl::Seconds(3));
  Advance(absl::Seconds(3));
  EXPECT_THAT(At("c").heard, Contains(HasSubstr("cancel")));
  EXPECT_EQ(runner_.running(), 1);
  Advance(RunningOperation::kEndingGrace);
  EXPECT_EQ(Latest("op-1").state, OperationState::kFailed);
  EXPECT_THAT(Latest("op-1").error, StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(runner_.running(), 0);
}

TEST_F(OperationRunnerTest, AnOperationWithoutADeadlineGetsOneFromThePrediction) {
  Start(Request("op-1"));
  EXPECT_GE(Latest("op-1").deadline, absl::Seconds(30));
  EXPECT_LT(Latest("op-1").deadline, absl::Seconds(31));
}

TEST_F(OperationRunnerTest, ProgressIsToldAtMostOnceInAnInterval) {
  Start(Request("op-1"));
  AcceptAll();
  const int64_t before = Latest("op-1").revision;
  for (int64_t bytes = 1; bytes <= 100; ++bytes) {
    runner_.OnProgress(
        {.worker = "w-c", .operation_id = "op-1", .attempt = 1, .moved_bytes = bytes});
  }
  Run();
  Advance(RunningOperation::kProgressInterval);
  EXPECT_EQ(Latest("op-1").moved_bytes, 100);
  EXPECT_EQ(Latest("op-1").revision, before + 1);
  runner_.OnProgress({.worker = "x", .operation_id = "op-1", .attempt = 9, .moved_bytes = 5});
  runner_.OnProgress({.worker = "w-c", .operation_id = "op-9", .attempt = 1, .moved_bytes = 5});
  Run();
  Advance(RunningOperation::kProgressInterval);
  EXPECT_EQ(Latest("op-1").moved_bytes, 100);
}

TEST_F(OperationRunnerTest, NothingIsLeftOfAnOperationThatHasEnded) {
  Start(Request("op-1"));
  AcceptAll();
  for (const std::string& host : Hosts()) Succeed(host);
  Resolve("c");
  Resolve("d");
  for (const auto& call : gateway_.calls) call->End(absl::OkStatus());
  Run();
  for (const auto& call : gateway_.calls) EXPECT_TRUE(call->dropped) << call->address;
  EXPECT_EQ(queue_.timers(), 0);
}

TEST_F(OperationRunnerTest, TooManyOperationsAreRefused) {
  for (int64_t i = 0; i < OperationRunner::kOperationsMax; ++i) {
    ASSERT_OK(runner_.Start(Request(absl::StrCat("op-", i))));
  }
  EXPECT_THAT(runner_.Start(Request("one-more")), StatusIs(absl::StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace crossmesh
