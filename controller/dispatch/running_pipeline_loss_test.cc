// Runs of pipelines whose workers are lost, and replaced.

#include "common/testing/status_matchers.h"
#include "controller/dispatch/testing/running_pipeline_fixture.h"

#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(RunningPipelineTest, AnIterationFailsWithALostWorkerAndTheNextOneRunsWithItsSuccessor) {
  StartIterations(3);
  AcceptAll();
  ReportAll(0);
  LoseWorker("c");
  EXPECT_THAT(At("a").heard.back(), HasSubstr("stop worker w-c: its session ended"));
  EXPECT_EQ(At("c").heard.back(), "cancel");
  const uint64_t first_operation = At("a").start.operation();
  const std::string first_token = At("a").start.token();
  Fail("a", 1, "stopped", "rank 0: 0F1 waits for buffers of 0>1");
  EndAll();
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_WAITING);
  EXPECT_EQ(Latest().failed_iterations(), 1);
  EXPECT_EQ(Latest().done(1).error(),
            "worker w-c: its session ended; rank 0: 0F1 waits for buffers of 0>1");
  Advance(absl::Seconds(3));
  EXPECT_THAT(gateway_.calls, SizeIs(4));
  Join("c", 2);
  Advance(RunningPipeline::kLookPause);
  EXPECT_THAT(gateway_.calls, SizeIs(8));
  EXPECT_NE(At("a").start.operation(), first_operation);
  EXPECT_NE(At("a").start.token(), first_token);
  EXPECT_EQ(At("a").start.peers(2).data_address(), "data-c2");
  EXPECT_EQ(At("a").start.peers(2).incarnation(), 2u);
  AcceptAll();
  ReportAll(2);
  EndAll();
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_DONE);
  EXPECT_EQ(Latest().error(), "");
}

TEST_F(RunningPipelineTest, ALostWorkerThatComesBackTooLateFailsTheRun) {
  PipelineRequest request = Request(3);
  request.rejoin_limit = absl::Seconds(2);
  Start(std::move(request));
  AcceptAll();
  LoseWorker("c");
  EndAll();
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_WAITING);
  Advance(absl::Seconds(1));
  Advance(absl::Seconds(1));
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_FAILED);
  EXPECT_EQ(Latest().error_code(), static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(Latest().error(),
              AllOf(HasSubstr("c.0"), HasSubstr("iteration 0: worker w-c: its session ended")));
  EXPECT_EQ(queue_.timers(), 0u);
}

// A run whose iteration 1 failed with the worker of a host.
class LostStateTest : public RunningPipelineTest {
 protected:
  void StartAndLose(const std::string& host) {
    StartIterations(5);
    AcceptAll();
    ReportAll(0);
    Lose(host);
  }
  void Lose(const std::string& host) {
    LoseWorker(host);
    EndAll();
  }
  // Another process, or the same one.
  void Rejoin(const std::string& host, uint64_t incarnation) {
    Join(host, incarnation);
    Advance(RunningPipeline::kLookPause);
  }
};

TEST_F(LostStateTest, EveryWorkerIsToldWhichRanksHaveLostTheirState) {
  StartAndLose("c");
  EXPECT_THAT(At("a").start.lost_ranks(), IsEmpty());
  Rejoin("c", 2);
  for (const char* host : kHosts) {
    EXPECT_THAT(At(host).start.lost_ranks(), ElementsAre(1));
    EXPECT_EQ(At(host).start.complete_iteration(), 0);
  }
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_WAITING);
  EXPECT_THAT(Latest().lost_ranks(), ElementsAre(1));
  AcceptAll();
  EXPECT_THAT(Latest().lost_ranks(), IsEmpty());
  // They have gone on together: what is lost from here on is told alone.
  Lose("b");
  Rejoin("b", 2);
  EXPECT_THAT(At("d").start.lost_ranks(), ElementsAre(0));
}

TEST_F(LostStateTest, AProcessThatComesBackHasItsState) {
  StartAndLose("c");
  Rejoin("c", 1);
  ASSERT_THAT(gateway_.calls, SizeIs(8));
  EXPECT_THAT(At("a").start.lost_ranks(), IsEmpty());
}

TEST_F(LostStateTest, ItIsToldAgainUntilAllGoOn) {
  StartAndLose("c");
  Rejoin("c", 2);
  for (const char* host : {"a", "c", "d"}) At(host).Accept();
  Lose("b");
  Rejoin("b", 2);
  EXPECT_THAT(At("a").start.lost_ranks(), ElementsAre(0, 1));
  AcceptAll();
  EXPECT_THAT(At("a").heard, ElementsAre("begin 2"));
}

TEST_F(LostStateTest, ARankThatDoesNotGoOnEndsTheRunWithItsReason) {
  StartAndLose("c");
  Rejoin("c", 2);
  At("a").End(absl::FailedPreconditionError("rank 0 does not go on: no checkpoint"));
  Run();
  EndAll();
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_FAILED);
  EXPECT_EQ(Latest().error(), "worker w-a: rank 0 does not go on: no checkpoint");
  EXPECT_THAT(Latest().lost_ranks(), ElementsAre(1));
}

TEST_F(LostStateTest, AnAnswerMayTakeAsLongAsACheckpointTakesToBeRead) {
  StartAndLose("c");
  Rejoin("c", 2);
  Advance(RunningPipeline::kRestoreLimit - absl::Seconds(1));
  EXPECT_THAT(At("a").heard, IsEmpty());
  Advance(absl::Seconds(1));
  EXPECT_THAT(At("a").heard, ElementsAre(HasSubstr("not accepted in time by w-a, w-b, w-c, w-d")));
}

// A device's state is where it was computed.
TEST_F(LostStateTest, ADeviceThatAnotherWorkerHasNowHasLostItsState) {
  StartAndLose("d");
  WorkerRecord heir{.name = "w-heir",
                    .incarnation = 1,
                    .devices = {{"d", 0}},
                    .execution_address = "at-d",
                    .data_address = "data-heir"};
  ASSERT_OK(registry_.Register(std::move(heir)).status());
  Advance(RunningPipeline::kLookPause);
  EXPECT_THAT(At("a").start.lost_ranks(), ElementsAre(1));
}

}  // namespace
}  // namespace crossmesh
