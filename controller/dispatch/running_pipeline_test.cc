#include "controller/dispatch/running_pipeline.h"

#include "common/testing/status_matchers.h"
#include "controller/dispatch/running_table.h"
#include "controller/dispatch/testing/dispatch_fixture.h"
#include "controller/dispatch/testing/fake_gateway.h"
#include "controller/dispatch/testing/sample_pipeline.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_split.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string CountingToken() {
  static int last = 0;
  return absl::StrFormat("%016d", ++last);
}

// Workers w-a to w-d, with a device each: the first two are rank 0, the others rank 1.
class RunningPipelineTest : public DispatchFixture {
 protected:
  RunningPipelineTest() {
    for (const char* host : kHosts) Join(host);
  }

  void TearDown() override { EXPECT_EQ(sink_.intents, 0) << "a run of a pipeline has none"; }

  void LoseWorker(const std::string& host) {
    EndSession(host);
    running_.WithAll([name = absl::StrCat("w-", host)](RunningPipeline& run) {
      run.WorkerIsLost(name, absl::UnavailableError("its session ended"));
    });
    Run();
  }

  PipelineRequest Request(int64_t iterations) {
    PipelineRequest request;
    request.shown.set_id("pr-1");
    request.shown.set_iterations(iterations);
    request.shown.set_revision(1);
    request.plan = [this](CancelCheck) { return PlanSample(spec_); };
    return request;
  }
  void Start(PipelineRequest request) {
    ASSERT_OK(running_.Start(std::move(request)));
    Run();
  }
  void StartIterations(int64_t iterations) { Start(Request(iterations)); }
  FakeProgramCall& At(const std::string& host) {
    auto* call = gateway_.Latest(absl::StrCat("at-", host));
    CHECK(call != nullptr) << "no call to worker " << host;
    return *call;
  }
  void AcceptAll() {
    for (const char* host : kHosts) At(host).Accept();
    Run();
  }
  // Ops begin at every 10 ms, a bit later on hosts that come later, and take 8 ms; messages take 3.
  void Report(const std::string& host, int64_t iteration) {
    const FakeProgramCall& call = At(host);
    const int64_t late = host[0] - 'a';
    v1::RunProgramResponse::IterationReport report;
    report.set_iteration(iteration);
    for (const auto& rank : call.program.ranks()) {
      auto& ops = *report.add_ops();
      ops.set_rank(rank.rank());
      const std::vector<std::string> actions = absl::StrSplit(rank.actions(), ' ');
      for (int64_t i = 0; i < std::ssize(actions); ++i) {
        ops.add_begin_ns(kHour + (10 * i + late) * kMillisecond);
        ops.add_end_ns(kHour + (10 * i + 8 + late) * kMillisecond);
      }
    }
    for (int i = 0; i < call.program.transfers_size(); ++i) {
      const bool sends =
          call.program.transfers(i).backward() == (call.program.ranks(0).rank() == 1);
      auto& transfer = *report.add_transfers();
      transfer.set_transfer(i);
      for (int64_t m = 0; m < 2; ++m) {
        transfer.add_produced_ns(sends ? kHour + (10 * m + 8 + late) * kMillisecond : 0);
        transfer.add_first_byte_ns(sends ? kMillisecond : 0);
        transfer.add_arrived_ns(sends ? 0 : kHour + (10 * m + 11 + late) * kMillisecond);
      }
    }
    call.Report(std::move(report));
    Run();
  }
  void ReportAll(int64_t iteration) {
    for (const char* host : kHosts) Report(host, iteration);
  }
  void Fail(const std::string& host, int64_t iteration, const std::string& message,
            const std::string& position) {
    v1::RunProgramResponse::IterationReport report;
    report.set_iteration(iteration);
    report.set_code(static_cast<int32_t>(absl::StatusCode::kAborted));
    report.set_message(message);
    report.add_positions(position);
    At(host).Report(std::move(report));
    Run();
  }
  void EndAll() {
    for (const char* host : kHosts) At(host).End(absl::OkStatus());
    Run();
  }
  void StopAfterIteration() {
    running_.With("pr-1", [](RunningPipeline& run) { run.Stop(/*now=*/false, "a test says so"); });
  }
  const v1::PipelineRun& Latest() { return sink_.latest.at("pr-1"); }

  static constexpr const char* kHosts[] = {"a", "b", "c", "d"};
  static constexpr int64_t kMillisecond = 1'000'000;
  static constexpr int64_t kHour = 3'600'000 * kMillisecond;

  v1::PipelineSpec spec_ = SamplePipeline({4, 4});
  FakeGateway<FakeProgramCall> gateway_;
  FakeSink<v1::PipelineRun> sink_;
  RunNumbers numbers_{7};
  RunningTable<RunningPipeline> running_{{.gateway = gateway_,
                                          .workers = registry_,
                                          .queue = queue_,
                                          .planners = planners_,
                                          .clock = clock_,
                                          .sink = sink_,
                                          .numbers = numbers_,
                                          .epoch = 7,
                                          .new_token = &CountingToken}};
};

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
}

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
