// Runs of pipelines through the controller's own API, with workers that compute nothing.

#include "common/testing/status_matchers.h"
#include "common/wire/time_codec.h"
#include "controller/testing/controller_pipeline_fixture.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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
using Manner = FakePrograms::Manner;
using Pipelines = v1::PipelineService::Stub;

TEST_F(ControllerPipelineTest, PipelinesAreKeptByName) {
  ASSERT_OK(CreatePipeline(Spec()));
  EXPECT_OK(CreatePipeline(Spec()));
  v1::PipelineSpec other = Spec();
  other.mutable_stages(0)->set_forward_seconds(1);
  EXPECT_THAT(CreatePipeline(other), StatusIs(absl::StatusCode::kAlreadyExists));
  other.set_name("unknown-mesh");
  other.mutable_ranks(1)->set_mesh("third");
  EXPECT_THAT(CreatePipeline(other), StatusIs(absl::StatusCode::kNotFound,
                                              AllOf(HasSubstr("ranks[1]"), HasSubstr("third"))));

  v1::GetPipelineRequest get;
  get.set_name("two");
  ASSERT_OK_AND_ASSIGN(const auto got, Call(*pipelines_, &Pipelines::GetPipeline, get));
  EXPECT_EQ(got.pipeline().SerializeAsString(), Spec().SerializeAsString());
  ASSERT_OK_AND_ASSIGN(const auto listed, Call(*pipelines_, &Pipelines::ListPipelines, {}));
  EXPECT_THAT(listed.pipelines(), SizeIs(1));

  v1::DeletePipelineRequest erase;
  erase.set_name("two");
  EXPECT_OK(Call(*pipelines_, &Pipelines::DeletePipeline, erase));
  EXPECT_THAT(Call(*pipelines_, &Pipelines::GetPipeline, get),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("two")));
}

TEST_F(ControllerPipelineTest, PlansWithoutWorkers) {
  ASSERT_OK(CreatePipeline(Spec()));
  v1::PlanPipelineRequest request;
  request.set_pipeline("two");
  request.mutable_choice()->set_schedule("1f1b");
  ASSERT_OK_AND_ASSIGN(const auto response, Call(*pipelines_, &Pipelines::PlanPipeline, request));
  EXPECT_EQ(response.plan().pipeline(), "two");
  EXPECT_EQ(response.plan().rank_ops(1), "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3");
  EXPECT_THAT(response.plan().transfers(), SizeIs(2));
  EXPECT_GT(response.plan().plan_seconds(), 0);

  request.set_pipeline("three");
  EXPECT_THAT(Call(*pipelines_, &Pipelines::PlanPipeline, request),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("three")));
}

TEST_F(ControllerPipelineTest, LayersArePlannedWithoutAChoice) {
  v1::PlanPipelineRequest request;
  v1::LayerProgramSpec& layers = *request.mutable_inline_layers();
  *layers.add_ranks() = Spec().ranks(0);
  for (const char* name : {"product", "norm"}) layers.add_ops()->set_name(name);
  v1::LayerProgramSpec::Transfer& sum = *layers.add_transfers();
  sum.set_name("sum");
  sum.add_partial_axes("x");
  v1::LayerProgramSpec::Tensor& tensor = *sum.add_tensors();
  tensor.mutable_tensor()->set_name("out");
  tensor.mutable_tensor()->set_dtype("F32");
  tensor.mutable_tensor()->add_shape(8);
  tensor.set_source_layout("[-]");
  tensor.set_destination_layout("[-]");
  sum.add_messages()->set_consumer(1);
  ASSERT_OK_AND_ASSIGN(const auto response, Call(*pipelines_, &Pipelines::PlanPipeline, request));
  EXPECT_THAT(response.plan().layers().ops(), SizeIs(2));
  EXPECT_EQ(response.plan().layers().transfers(0).name(), "sum");
  EXPECT_EQ(response.plan().predicted_seconds(),
            response.plan().layers().transfers(0).exposed_seconds());

  request.mutable_choice()->set_schedule("1f1b");
  EXPECT_THAT(Call(*pipelines_, &Pipelines::PlanPipeline, request),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("choice: expected none")));
  request.clear_choice();
  layers.mutable_ops(1)->set_rank(3);
  EXPECT_THAT(Call(*pipelines_, &Pipelines::PlanPipeline, request),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("op norm")));
}

TEST_F(ControllerPipelineTest, ARunGoesThroughAllIterations) {
  StartWorkers();
  ASSERT_OK(CreatePipeline(Spec()));
  v1::StartPipelineRequest request = Request("r", 5);
  request.set_pipeline("two");
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun run, Start(request).Last());
  EXPECT_EQ(run.state(), v1::PIPELINE_RUN_STATE_DONE) << run.error();
  EXPECT_EQ(run.request_id(), "r");
  EXPECT_EQ(run.pipeline(), "two");
  EXPECT_TRUE(run.rehearsal());
  ASSERT_THAT(run.done(), SizeIs(5));
  EXPECT_NEAR(run.done(4).seconds(), 0.008, 1e-6);
  EXPECT_NEAR(run.median_seconds(), 0.008, 1e-6);
  EXPECT_THAT(run.measurement().ranks(), SizeIs(2));
  for (size_t worker = 0; worker < 3; ++worker) {
    EXPECT_EQ(Programs(worker).counts().programs, 1);
    EXPECT_EQ(Programs(worker).counts().iterations, 5);
    EXPECT_EQ(Programs(worker).counts().ends, 1);
  }
  EXPECT_EQ(Programs(0).last_start().run_id(), run.id());
  EXPECT_EQ(Programs(0).last_start().peers(0).devices(), "a.0-1");
  EXPECT_EQ(Programs(2).last_program().ranks(0).actions(), run.plan().rank_ops(1));

  // It is there for clients that ask later.
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun watched, Watch(run.id()).Last());
  EXPECT_EQ(watched.revision(), run.revision());
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun again, Start(request).Last());
  EXPECT_EQ(again.id(), run.id());
  request.set_iterations(6);
  EXPECT_THAT(Start(request).Last(), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("r")));
  ASSERT_OK_AND_ASSIGN(const auto listed, Call(*pipelines_, &Pipelines::ListPipelineRuns, {}));
  ASSERT_THAT(listed.runs(), SizeIs(1));
  EXPECT_THAT(listed.runs(0).plan().rank_ops(), IsEmpty());
  EXPECT_FALSE(listed.runs(0).has_measurement());
}

TEST_F(ControllerPipelineTest, AProgramOfManyPiecesArrivesWhole) {
  StartWorkers();
  v1::StartPipelineRequest request = Request("r", 1);
  request.mutable_inline_pipeline()->mutable_microbatches(0)->set_count(60'000);
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun run, Start(request).Last());
  EXPECT_EQ(run.state(), v1::PIPELINE_RUN_STATE_DONE) << run.error();
  EXPECT_GT(run.plan().rank_ops(0).size(), size_t{1} << 19);
  EXPECT_EQ(Programs(0).last_program().ranks(0).actions(), run.plan().rank_ops(0));
  // Too many times to be told one by one.
  EXPECT_THAT(run.measurement().ranks(), IsEmpty());
  EXPECT_THAT(run.measurement().transfers(), SizeIs(2));
}

TEST_F(ControllerPipelineTest, ABadRequestIsRefused) {
  using Change = std::function<void(v1::StartPipelineRequest&)>;
  const std::vector<std::pair<Change, std::string>> cases = {
      {[](auto& r) { r.clear_request_id(); }, "request_id"},
      {[](auto& r) { r.set_iterations(0); }, "iterations"},
      {[](auto& r) { *r.mutable_iteration_deadline() = ToProto(absl::Milliseconds(1)); },
       "iteration_deadline"},
      {[](auto& r) { r.clear_pipeline_source(); }, "pipeline_source"},
      {[](auto& r) { r.mutable_choice()->set_schedule("best"); }, "best"},
  };
  for (const auto& [change, said] : cases) {
    v1::StartPipelineRequest request = Request("r", 1);
    change(request);
    EXPECT_THAT(Start(request).Last(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(said)));
  }
  EXPECT_THAT(Watch("pr-1").Last(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("pr-1")));
  EXPECT_THAT(Stop("pr-1", true), StatusIs(absl::StatusCode::kNotFound, HasSubstr("pr-1")));
}

TEST_F(ControllerPipelineTest, ARunThatCannotBePlannedHasNoPlanAndSaysWhy) {
  v1::StartPipelineRequest request = Request("r", 5);
  request.mutable_inline_pipeline()->mutable_stages(0)->set_static_bytes(2);
  request.mutable_inline_pipeline()->mutable_ranks(0)->set_device_bytes_max(1);
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun run, Start(request).Last());
  EXPECT_EQ(run.state(), v1::PIPELINE_RUN_STATE_FAILED);
  EXPECT_THAT(run.error(), HasSubstr("rank 0"));
  EXPECT_FALSE(run.has_plan());
  ASSERT_OK_AND_ASSIGN(const auto listed, Call(*pipelines_, &Pipelines::ListPipelineRuns, {}));
  ASSERT_THAT(listed.runs(), SizeIs(1));
  EXPECT_FALSE(listed.runs(0).has_plan());
}

TEST_F(ControllerPipelineTest, ARefusedProgramFailsTheRun) {
  StartWorkers();
  Programs(1).SetManner(Manner::kRefusing);
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun run, Start(Request("r", 5)).Last());
  EXPECT_EQ(run.state(), v1::PIPELINE_RUN_STATE_FAILED);
  EXPECT_EQ(run.error(), "worker w-b: no memory for the buffers of 0>1");
}

TEST_F(ControllerPipelineTest, AFailedIterationIsToldAndTheNextOneRuns) {
  StartWorkers();
  Programs(1).SetManner(Manner::kFailing);
  v1::StartPipelineRequest request = Request("r", 2);
  StartReader reader = Start(request);
  ASSERT_OK_AND_ASSIGN(v1::PipelineRun run, reader.NextIn(v1::PIPELINE_RUN_STATE_WAITING));
  Programs(1).SetManner(Manner::kDiligent);
  ASSERT_OK_AND_ASSIGN(run, reader.Last());
  EXPECT_EQ(run.state(), v1::PIPELINE_RUN_STATE_DONE) << run.error();
  EXPECT_EQ(run.failed_iterations(), 1);
  EXPECT_THAT(run.done(0).error(),
              AllOf(HasSubstr("worker w-b: 1F0: microbatch 0 of 0>1: bytes differ"),
                    HasSubstr("rank 0: waits")));
  EXPECT_EQ(Programs(0).counts().programs, 2);

  request = Request("s", 2);
  request.set_stop_at_failure(true);
  Programs(1).SetManner(Manner::kFailing);
  ASSERT_OK_AND_ASSIGN(run, Start(request).Last());
  EXPECT_EQ(run.state(), v1::PIPELINE_RUN_STATE_FAILED);
  EXPECT_EQ(run.error_code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_THAT(run.done(), SizeIs(1));
}

TEST_F(ControllerPipelineTest, AWorkerThatDiesInMidIterationMayComeBack) {
  StartReader reader = StartHeld(Request("r", 3));
  Programs(2).WaitForIterations(1);
  workers_.pop_back();
  ASSERT_OK_AND_ASSIGN(v1::PipelineRun run, reader.NextIn(v1::PIPELINE_RUN_STATE_WAITING));
  EXPECT_THAT(run.done(0).error(), HasSubstr("worker w-c"));
  AddWorker("c");
  ASSERT_OK_AND_ASSIGN(run, reader.Last());
  EXPECT_EQ(run.state(), v1::PIPELINE_RUN_STATE_DONE) << run.error();
  EXPECT_EQ(run.failed_iterations(), 1);
  EXPECT_EQ(Programs(2).counts().iterations, 2);
}

TEST_F(ControllerPipelineTest, AWorkerThatDoesNotComeBackFailsTheRun) {
  v1::StartPipelineRequest request = Request("r", 3);
  *request.mutable_rejoin_limit() = ToProto(absl::Milliseconds(300));
  StartReader reader = StartHeld(request);
  Programs(2).WaitForIterations(1);
  workers_.pop_back();
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun run, reader.Last());
  EXPECT_EQ(run.state(), v1::PIPELINE_RUN_STATE_FAILED);
  EXPECT_THAT(run.error(),
              AllOf(HasSubstr("not all there in time"), HasSubstr("iteration 0: worker w-c")));
}

TEST_F(ControllerPipelineTest, AnIterationThatTakesTooLongFails) {
  v1::StartPipelineRequest request = Request("r", 1);
  *request.mutable_iteration_deadline() = ToProto(absl::Milliseconds(100));
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun run, StartHeld(request).Last());
  EXPECT_EQ(run.state(), v1::PIPELINE_RUN_STATE_FAILED);
  EXPECT_THAT(run.error(), AllOf(HasSubstr("without word of w-c"), HasSubstr("rank 1: waits")));
}

TEST_F(ControllerPipelineTest, ARunIsStoppedByAnyClient) {
  StartReader reader = StartHeld(Request("r", 1000));
  Programs(2).WaitForIterations(1);
  ASSERT_OK_AND_ASSIGN(v1::PipelineRun run, reader.NextIn(v1::PIPELINE_RUN_STATE_RUNNING));
  EXPECT_OK(Stop(run.id(), /*now=*/false));
  EXPECT_OK(Stop(run.id(), /*now=*/true));
  ASSERT_OK_AND_ASSIGN(run, reader.Last());
  EXPECT_EQ(run.state(), v1::PIPELINE_RUN_STATE_STOPPED);
  EXPECT_EQ(run.error_code(), static_cast<int>(absl::StatusCode::kCancelled));
  EXPECT_THAT(run.done(), SizeIs(1));
  EXPECT_OK(Stop(run.id(), /*now=*/true));
}

// Its store goes with it, and so does the run.
TEST_F(ControllerPipelineTest, AControllerThatStopsTellsWorkersWhy) {
  EndController();
  store_ = nullptr;
  ASSERT_NO_FATAL_FAILURE(SetUp());
  StartReader reader = StartHeld(Request("r", 1000));
  Programs(2).WaitForIterations(1);
  controller_->Shutdown(absl::Seconds(10));
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun run, reader.Last());
  EXPECT_EQ(run.state(), v1::PIPELINE_RUN_STATE_STOPPED);
  EXPECT_THAT(run.error(), HasSubstr("the controller is stopping"));
  EXPECT_EQ(Programs(0).counts().stops, 1);
}

TEST_F(ControllerPipelineTest, AControllerWithoutTimeBreaksRunsOff) {
  StartReader reader = StartHeld(Request("r", 1000));
  Programs(2).WaitForIterations(1);
  controller_.reset();
  while (reader.Next().ok()) {
  }
}

}  // namespace
}  // namespace crossmesh
