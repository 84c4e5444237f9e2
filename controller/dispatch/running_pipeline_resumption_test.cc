// What is on record of a run, before workers are told of it, and how another controller goes on.

#include "common/testing/status_matchers.h"
#include "controller/dispatch/pipeline_resumption.h"
#include "controller/dispatch/testing/running_pipeline_fixture.h"

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
using ::testing::SizeIs;

class TakenUpPipelineTest : public RunningPipelineTest {
 protected:
  stored::v1::PipelineProgress OnRecord() {
    const auto progress = ParseProgress("pr-1", sink_.progress["pr-1"]);
    EXPECT_OK(progress);
    return progress.value_or(stored::v1::PipelineProgress());
  }
  // The store is as fast again as it was.
  void RecordHeld() {
    sink_.hold_progress = false;
    for (auto& done : std::exchange(sink_.held_progress, {})) done(absl::OkStatus());
    sink_.hold_progress = true;
    Run();
  }
  PipelineRequest LeftRequest(int64_t iterations) {
    PipelineRequest request = Request(iterations);
    Advance(RunningPipeline::kPublishInterval);  // the former one says no more
    request.left = OnRecord();
    sink_.latest.clear();
    sink_.intents = 0;
    calls_before_ = gateway_.calls.size();
    return request;
  }
  // By another controller, which knows what is on record.
  void TakeUp(int64_t iterations) { Start(LeftRequest(iterations)); }
  // Three iterations, of which the first is complete and the second runs.
  void RunOne(int64_t iterations = 3) {
    StartIterations(iterations);
    AcceptAll();
    ReportAll(0);
  }
  size_t new_calls() const { return gateway_.calls.size() - calls_before_; }

  size_t calls_before_ = 0;
};

TEST_F(TakenUpPipelineTest, TheIntentIsOnRecordBeforeAnyProgramStarts) {
  sink_.hold_commits = true;
  StartIterations(1);
  EXPECT_EQ(sink_.intents, 1);
  EXPECT_EQ(sink_.resumptions["pr-1"], "what was asked for");
  EXPECT_EQ(Latest().plan().rank_ops(0), "0F0 0F1 0B0 0B1");
  EXPECT_THAT(gateway_.calls, IsEmpty());
  sink_.commits.front()(absl::OkStatus());
  Run();
  EXPECT_THAT(gateway_.calls, SizeIs(4));
}

TEST_F(TakenUpPipelineTest, AnIntentThatCannotBeRecordedFailsTheRun) {
  sink_.intent_result = absl::ResourceExhaustedError("the store is full");
  StartIterations(1);
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_FAILED);
  EXPECT_EQ(Latest().error(), "the store is full");
  EXPECT_THAT(gateway_.calls, IsEmpty());
}

TEST_F(TakenUpPipelineTest, NoWorkerIsToldWhatIsNotOnRecord) {
  sink_.hold_progress = true;
  StartIterations(2);
  AcceptAll();
  EXPECT_THAT(At("a").heard, IsEmpty());
  RecordHeld();
  EXPECT_THAT(At("a").heard, ElementsAre("begin 0"));
  ReportAll(0);
  EXPECT_THAT(At("a").heard, ElementsAre("begin 0"));
  Advance(RunningPipeline::kPublishInterval);
  EXPECT_THAT(Latest().done(), IsEmpty()) << "nor is a client";
  RecordHeld();
  EXPECT_THAT(At("a").heard, ElementsAre("begin 0", "begin 1"));
  ReportAll(1);
  EXPECT_THAT(At("a").heard, ElementsAre("begin 0", "begin 1"));
  RecordHeld();
  EXPECT_THAT(At("a").heard, ElementsAre("begin 0", "begin 1", "stop "));
  EndAll();
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_DONE);
}

TEST_F(TakenUpPipelineTest, WhatIsOnRecordIsSmall) {
  RunOne();
  const stored::v1::PipelineProgress progress = OnRecord();
  EXPECT_EQ(progress.complete_iteration(), 0);
  EXPECT_EQ(progress.begun_iteration(), 1);
  EXPECT_NEAR(progress.complete_seconds(), 0.041, 1e-9);
  ASSERT_THAT(progress.processes(), SizeIs(4));
  EXPECT_EQ(progress.processes(2).worker(), "w-c");
  EXPECT_EQ(progress.processes(2).incarnation(), 1);
  EXPECT_EQ(progress.processes(2).devices(), "c.0");
  EXPECT_LT(sink_.progress["pr-1"].size(), 100);
}

TEST_F(TakenUpPipelineTest, WhileTheStoreTakesNothingItWaitsAndSaysSo) {
  StartIterations(3);
  AcceptAll();
  sink_.progress_result = absl::ResourceExhaustedError("the store is full");
  ReportAll(0);
  Advance(RunningPipeline::kRecordPause);
  Advance(RunningPipeline::kRecordPause);
  EXPECT_THAT(At("a").heard, ElementsAre("begin 0"));
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_RUNNING);
  EXPECT_THAT(Latest().obstacle(), HasSubstr("the store is full"));
  sink_.progress_result = absl::OkStatus();
  Advance(RunningPipeline::kRecordPause);
  EXPECT_THAT(At("a").heard, ElementsAre("begin 0", "begin 1"));
  Advance(RunningPipeline::kPublishInterval);
  EXPECT_EQ(Latest().obstacle(), "");
}

TEST_F(TakenUpPipelineTest, AControllerThatIsReplacedTellsNoWorkerWhatIsComplete) {
  StartIterations(1);
  AcceptAll();
  sink_.progress_result = absl::AbortedError("epoch 7 is fenced");
  ReportAll(0);
  EXPECT_THAT(At("a").heard, ElementsAre("begin 0", "stop epoch 7 is fenced"));
  EndAll();
  EXPECT_EQ(running_.running(), 0);
}

TEST_F(TakenUpPipelineTest, ItGoesOnWithTheNextIteration) {
  RunOne();
  TakeUp(3);
  EXPECT_EQ(sink_.intents, 0) << "it is on record";
  ASSERT_EQ(new_calls(), 4);
  EXPECT_EQ(At("a").start.run_id(), "pr-1");
  EXPECT_TRUE(At("a").start.has_complete_iteration());
  EXPECT_EQ(At("a").start.complete_iteration(), 0);
  EXPECT_THAT(At("a").start.lost_ranks(), IsEmpty());
  AcceptAll();
  // Iteration 1 may have been begun.
  EXPECT_THAT(At("a").heard, ElementsAre("begin 2"));
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_RUNNING);
  EXPECT_EQ(Latest().failed_iterations(), 1);
  ASSERT_THAT(Latest().done(), SizeIs(2));
  EXPECT_NEAR(Latest().done(0).seconds(), 0.041, 1e-9);
  EXPECT_EQ(Latest().done(1).index(), 1);
  EXPECT_EQ(Latest().done(1).error(), "the controller that ran it has ended");
  ReportAll(2);
  EndAll();
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_DONE) << Latest().error();
}

TEST_F(TakenUpPipelineTest, ItBeginsWithTheFirstIterationWhenNoneWasBegun) {
  StartIterations(3);
  TakeUp(3);
  ASSERT_EQ(new_calls(), 4);
  EXPECT_FALSE(At("a").start.has_complete_iteration());
  AcceptAll();
  EXPECT_THAT(At("a").heard, ElementsAre("begin 0"));
  EXPECT_EQ(Latest().failed_iterations(), 0);
}

TEST_F(TakenUpPipelineTest, ItIsDoneWhenItsLastIterationIsComplete) {
  StartIterations(1);
  AcceptAll();
  ReportAll(0);
  PipelineRequest request = LeftRequest(1);
  request.plan = [](CancelCheck) -> PipelineRequest::Planned {
    return absl::NotFoundError("what it names is gone");
  };
  Start(std::move(request));
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_DONE) << Latest().error();
  EXPECT_EQ(new_calls(), 0);
  EXPECT_THAT(Latest().done(), SizeIs(1));
}

TEST_F(TakenUpPipelineTest, WhatCannotBePlannedAnyMoreFailsIt) {
  RunOne();
  PipelineRequest request = LeftRequest(3);
  request.plan = [](CancelCheck) -> PipelineRequest::Planned {
    return absl::NotFoundError("mesh first is gone");
  };
  Start(std::move(request));
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_FAILED);
  EXPECT_EQ(Latest().error(), "mesh first is gone");
}

TEST_F(TakenUpPipelineTest, ItWaitsForItsWorkersToCome) {
  RunOne();
  EndSession("d");
  TakeUp(3);
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_WAITING);
  Advance(absl::Seconds(3));
  EXPECT_EQ(new_calls(), 0);
  Join("d");
  Advance(RunningPipeline::kLookPause);
  EXPECT_EQ(new_calls(), 4);
  AcceptAll();
  EXPECT_THAT(At("d").heard, ElementsAre("begin 2"));
}

TEST_F(TakenUpPipelineTest, WorkersThatDoNotComeFailIt) {
  RunOne();
  EndSession("d");
  PipelineRequest request = LeftRequest(3);
  request.rejoin_limit = absl::Seconds(2);
  Start(std::move(request));
  Advance(absl::Seconds(1));
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_WAITING);
  Advance(absl::Seconds(1));
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_FAILED);
  EXPECT_THAT(Latest().error(), AllOf(HasSubstr("d.0"), HasSubstr("not all there in time")));
}

TEST_F(TakenUpPipelineTest, AProcessThatWasReplacedMeanwhileIsToldOf) {
  RunOne(9);
  EndSession("c");
  Join("c", 2);
  TakeUp(9);
  for (const char* host : kHosts) {
    EXPECT_THAT(At(host).start.lost_ranks(), ElementsAre(1));
    EXPECT_EQ(At(host).start.complete_iteration(), 0);
  }
  // Once all go on together, no controller asks any more.
  AcceptAll();
  TakeUp(9);
  EXPECT_THAT(At("a").start.lost_ranks(), IsEmpty());
  AcceptAll();
  EXPECT_THAT(At("a").heard, ElementsAre("begin 3"));
}

TEST_F(TakenUpPipelineTest, ItIsToldAgainWhatWasLostUntilAllGoOn) {
  RunOne(9);
  EndSession("c");
  Join("c", 2);
  TakeUp(9);
  for (const char* host : {"a", "b", "c"}) At(host).Accept();
  Run();
  TakeUp(9);
  EXPECT_THAT(At("a").start.lost_ranks(), ElementsAre(1));
}

TEST_F(TakenUpPipelineTest, FailedIterationsAreCountedOn) {
  RunOne(9);
  Fail("b", 1, "bytes differ", "rank 0: waits");
  EndAll();
  Advance(RunningPipeline::kLookPause);
  AcceptAll();
  EXPECT_THAT(At("a").heard, ElementsAre("begin 2"));
  TakeUp(9);
  AcceptAll();
  EXPECT_THAT(At("a").heard, ElementsAre("begin 3"));
  EXPECT_EQ(At("a").start.complete_iteration(), 0);
  EXPECT_EQ(Latest().failed_iterations(), 2);
}

TEST_F(TakenUpPipelineTest, AControllerThatStopsLeavesItToTheNext) {
  RunOne();
  running_.WithAll([](RunningPipeline& run) { run.Leave("the controller is stopping"); });
  Run();
  EXPECT_THAT(At("a").heard.back(), HasSubstr("stop stopped: the controller is stopping"));
  EndAll();
  EXPECT_EQ(running_.running(), 0);
  EXPECT_FALSE(Latest().has_end_time());
  TakeUp(3);
  AcceptAll();
  EXPECT_THAT(At("a").heard, ElementsAre("begin 2"));
}

TEST_F(TakenUpPipelineTest, ARunThatAClientHasStoppedIsNotLeft) {
  RunOne();
  StopAfterIteration();
  running_.WithAll([](RunningPipeline& run) { run.Leave("the controller is stopping"); });
  Run();
  EndAll();
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_STOPPED);
  EXPECT_TRUE(Latest().has_end_time());
}

TEST(PipelineResumptionTest, ProgressThatDoesNotFitTogetherIsRefused) {
  EXPECT_OK(ParseProgress("pr-1", ""));
  std::vector<std::string> wrong = {"?"};
  const auto add = [&wrong](auto change) {
    stored::v1::PipelineProgress progress;
    progress.set_complete_iteration(3);
    progress.set_begun_iteration(4);
    change(progress);
    wrong.push_back(progress.SerializeAsString());
  };
  add([](auto& p) { p.set_begun_iteration(2); });
  add([](auto& p) { p.clear_begun_iteration(); });
  add([](auto& p) { p.set_complete_iteration(-1); });
  add([](auto& p) { p.set_failed_iterations(-1); });
  add([](auto& p) { p.add_processes()->set_devices("a.0-"); });
  for (const std::string& bytes : wrong) {
    EXPECT_THAT(ParseProgress("pr-1", bytes),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("pr-1")));
  }
}

}  // namespace
}  // namespace crossmesh
