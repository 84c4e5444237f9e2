#include "controller/dispatch/running_pipeline.h"

#include "common/testing/status_matchers.h"
#include "controller/dispatch/testing/running_pipeline_fixture.h"
#include "controller/dispatch/testing/sample_layers.h"

#include <utility>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(RunningPipelineTest, ARunIsDoneWhenAllIterationsAreComplete) {
  StartIterations(2);
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_PREPARING);
  EXPECT_EQ(Latest().plan().rank_ops(0), "0F0 0F1 0B0 0B1");
  const v1::RunProgramRequest::Start& start = At("c").start;
  EXPECT_EQ(start.run_id(), "pr-1");
  EXPECT_EQ(start.epoch(), 7);
  EXPECT_EQ(start.token().size(), 16);
  EXPECT_TRUE(start.checksums());
  ASSERT_THAT(start.peers(), SizeIs(4));
  EXPECT_EQ(start.peers(3).worker(), "w-d");
  EXPECT_EQ(start.peers(3).data_address(), "data-d1");
  EXPECT_EQ(start.peers(3).devices(), "d.0");
  AcceptAll();
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_RUNNING);
  ReportAll(0);
  ReportAll(1);
  EndAll();
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_DONE);
  EXPECT_TRUE(Latest().has_end_time());
  EXPECT_THAT(Latest().done(), SizeIs(2));
  EXPECT_EQ(Latest().error(), "");
  EXPECT_THAT(At("a").heard, ElementsAre("begin 0", "begin 1", "stop "));
  EXPECT_EQ(running_.running(), 0);
  EXPECT_EQ(queue_.timers(), 0u);
}

TEST_F(RunningPipelineTest, WhatWorkersTellBecomesAMeasurement) {
  StartIterations(1);
  AcceptAll();
  ReportAll(0);
  EndAll();
  // From a.0's first op, at 0, to d.0's fourth, at 30 + 3, which takes 8.
  EXPECT_NEAR(Latest().done(0).seconds(), 0.041, 1e-9);
  EXPECT_NEAR(Latest().median_seconds(), 0.041, 1e-9);
  const v1::PipelineMeasurement& measured = Latest().measurement();
  ASSERT_THAT(measured.ranks(), SizeIs(2));
  const v1::PipelineTimes& ops = measured.ranks(1).ops();
  EXPECT_THAT(ops.name(), ElementsAre("1F0", "1B0", "1F1", "1B1"));
  EXPECT_NEAR(ops.begin(1), 0.012, 1e-9);  // c's
  EXPECT_NEAR(ops.end(1), 0.021, 1e-9);    // d's
  ASSERT_THAT(measured.transfers(), SizeIs(2));
  const v1::PipelineMeasurement::Transfer& forward = measured.transfers(0);
  EXPECT_FALSE(forward.backward());
  EXPECT_THAT(forward.messages().name(), ElementsAre("0F0", "0F1"));
  EXPECT_NEAR(forward.messages().begin(0), 0.009, 1e-9);  // b's
  EXPECT_NEAR(forward.messages().end(0), 0.014, 1e-9);    // d's
  EXPECT_NEAR(forward.transfer_seconds(), 0.005, 1e-9);
  EXPECT_NEAR(forward.first_byte_seconds(), 0.001, 1e-9);
  EXPECT_THAT(measured.transfers(1).messages().name(), ElementsAre("1B0", "1B1"));
}

TEST_F(RunningPipelineTest, ALayerProgramRunsAsAPipelineDoes) {
  PipelineRequest request = Request(1);
  request.plan = [](CancelCheck) -> PipelineRequest::Planned {
    return MakeRunnable(PlanSampleLayers());
  };
  Start(std::move(request));
  EXPECT_EQ(Latest().pipeline(), "sums");
  EXPECT_THAT(Latest().plan().layers().ops(), SizeIs(4));
  AcceptAll();
  EXPECT_TRUE(At("a").start.layers());
  EXPECT_THAT(At("a").layers.ranks(0).ops(), SizeIs(3));
  EXPECT_THAT(At("d").layers.transfers(), SizeIs(1));
  for (const char* host : kHosts) {
    v1::RunProgramResponse::IterationReport report;
    auto& ops = *report.add_ops();
    const v1::LayerProgram::Rank& rank = At(host).layers.ranks(0);
    ops.set_rank(rank.rank());
    for (int64_t op = 0; op < rank.ops_size(); ++op) {
      ops.add_begin_ns(kHour + op * kMillisecond);
      ops.add_end_ns(kHour + (op + 1) * kMillisecond);
    }
    At(host).Report(std::move(report));
    Run();
  }
  EndAll();
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_DONE) << Latest().error();
  EXPECT_NEAR(Latest().median_seconds(), 0.003, 1e-9);
  EXPECT_THAT(Latest().measurement().ranks(0).ops().name(), ElementsAre("first", "second", "end"));
  EXPECT_THAT(Latest().measurement().ranks(1).ops().name(), ElementsAre("head"));
}

TEST_F(RunningPipelineTest, ARefusedProgramFailsTheRunAndNamesTheWorker) {
  StartIterations(2);
  At("a").Accept();
  At("c").End(absl::ResourceExhaustedError("no memory for 0>1"));
  Run();
  EXPECT_THAT(At("a").heard, ElementsAre(HasSubstr("stop worker w-c: no memory")));
  for (const char* host : {"a", "b", "d"}) At(host).End(absl::OkStatus());
  Run();
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_FAILED);
  EXPECT_EQ(Latest().error(), "worker w-c: no memory for 0>1");
  EXPECT_EQ(Latest().error_code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(Latest().done(), IsEmpty());
}

TEST_F(RunningPipelineTest, AWorkerThatIsNotThereFailsTheRunAtOnce) {
  LoseWorker("d");
  StartIterations(2);
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_FAILED);
  EXPECT_THAT(Latest().error(), HasSubstr("d.0"));
  EXPECT_THAT(gateway_.calls, IsEmpty());
}

TEST_F(RunningPipelineTest, AWorkerThatMayComeBackIsAwaited) {
  LoseWorker("d");
  registry_.AwaitReturns(absl::Seconds(10));
  StartIterations(2);
  Advance(absl::Seconds(3));
  EXPECT_FALSE(Latest().has_end_time());
  EXPECT_THAT(gateway_.calls, IsEmpty());
  Join("d");
  Advance(RunningPipeline::kLookPause);
  EXPECT_EQ(gateway_.calls.size(), 4);
}

TEST_F(RunningPipelineTest, AWorkerThatDoesNotComeBackInTimeFailsTheRun) {
  LoseWorker("d");
  registry_.AwaitReturns(absl::Seconds(10));
  StartIterations(2);
  Advance(absl::Seconds(10));
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_FAILED);
  EXPECT_THAT(Latest().error(), HasSubstr("d.0"));
}

TEST_F(RunningPipelineTest, ASuspectWorkerIsNotReady) {
  for (int second = 0; second < 7; ++second) {
    clock_.Advance(absl::Seconds(1));
    registry_.Sweep();
  }
  StartIterations(2);
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_FAILED);
  EXPECT_THAT(Latest().error(), AllOf(HasSubstr("w-a"), HasSubstr("expected READY")));
}

TEST_F(RunningPipelineTest, AGpuIsRefused) {
  JoinGpu("d", 0);
  StartIterations(2);
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_FAILED);
  EXPECT_EQ(Latest().error_code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Latest().error(), AllOf(HasSubstr("d.0"), HasSubstr("GPU")));
}

TEST_F(RunningPipelineTest, WhatCannotBePlannedFailsTheRun) {
  spec_.mutable_stages(1)->set_forward_seconds(-1);
  StartIterations(2);
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_FAILED);
  EXPECT_THAT(Latest().error(), HasSubstr("stages[1]"));
  EXPECT_FALSE(Latest().has_plan());
}

TEST_F(RunningPipelineTest, TheDeadlineIsOfEachIteration) {
  PipelineRequest request = Request(3);
  request.iteration_deadline = absl::Seconds(10);
  Start(std::move(request));
  AcceptAll();
  Advance(absl::Seconds(9));
  ReportAll(0);
  Advance(absl::Seconds(9));
  Report("a", 1);
  EXPECT_THAT(At("a").heard, ElementsAre("begin 0", "begin 1"));
  Advance(absl::Seconds(1));
  EXPECT_THAT(At("a").heard.back(), HasSubstr("without word of w-b, w-c, w-d"));
  // Those that do not end are cancelled.
  At("a").End(absl::OkStatus());
  Advance(RunningPipeline::kEndingGrace);
  EXPECT_EQ(At("b").heard.back(), "cancel");
  EndAll();
  EXPECT_EQ(Latest().done(1).error_code(), static_cast<int>(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(RunningPipelineTest, WithoutADeadlineItFollowsFromThePrediction) {
  StartIterations(1);
  AcceptAll();
  Advance(absl::Seconds(30));
  EXPECT_THAT(At("a").heard, ElementsAre("begin 0"));
  Advance(absl::Seconds(3 * Latest().plan().predicted_seconds()));
  EXPECT_THAT(At("a").heard, ElementsAre("begin 0", HasSubstr("stop its deadline passed")));
}

TEST_F(RunningPipelineTest, ARunStopsAfterTheIterationOrAtOnce) {
  StartIterations(5);
  AcceptAll();
  StopAfterIteration();
  Run();
  EXPECT_THAT(At("a").heard, ElementsAre("begin 0"));
  ReportAll(0);
  EXPECT_THAT(At("a").heard, ElementsAre("begin 0", "stop "));
  EndAll();
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_STOPPED);
  EXPECT_EQ(Latest().failed_iterations(), 0);

  sink_.latest.clear();
  StartIterations(5);
  AcceptAll();
  running_.WithAll(
      [](RunningPipeline& run) { run.Stop(/*now=*/true, "the controller is stopping"); });
  Run();
  EXPECT_THAT(At("a").heard.back(), HasSubstr("stop stopped: the controller is stopping"));
  EndAll();
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_STOPPED);
  EXPECT_EQ(running_.running(), 0);
}

TEST_F(RunningPipelineTest, ChangesOfIterationsOnlyAreToldTenTimesASecond) {
  StartIterations(1000);
  AcceptAll();
  const int64_t revision = Latest().revision();
  for (int64_t i = 0; i < 20; ++i) ReportAll(i);
  EXPECT_EQ(Latest().revision(), revision);
  Advance(RunningPipeline::kPublishInterval);
  EXPECT_EQ(Latest().revision(), revision + 1);
  EXPECT_THAT(Latest().done(), SizeIs(20));
}

TEST_F(RunningPipelineTest, ARunThatIsStoppedWhileItIsPlannedStartsNothing) {
  ASSERT_OK(running_.Start(Request(1)));
  queue_.Run();
  StopAfterIteration();
  queue_.Run();
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_STOPPED);
  Run();
  EXPECT_THAT(gateway_.calls, IsEmpty());
}

TEST_F(RunningPipelineTest, SoManyRunAtOnceAndNoMore) {
  for (int64_t i = 0; i < RunningPipeline::kRunsMax; ++i) {
    PipelineRequest request = Request(1);
    request.shown.set_id(absl::StrCat("pr-", i));
    ASSERT_OK(running_.Start(std::move(request)));
  }
  EXPECT_THAT(running_.Start(Request(1)), StatusIs(absl::StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace crossmesh
