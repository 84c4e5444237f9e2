// Commands that run pipelines: the program against a controller that only plays them.

#include "client/cli/pipeline_run_report.h"
#include "client/cli/testing/example_run.h"
#include "client/cli/testing/program_run.h"
#include "client/testing/answers.h"
#include "common/base/mutex.h"
#include "common/rpc/server.h"
#include "common/rpc/server_streams.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "crossmesh/v1/pipeline_service.grpc.pb.h"
#include "planner/pipeline/planning/testing/example_pipeline.h"
#include "planner/pipeline/planning/testing/planned_pipelines.h"

#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>
#include <google/protobuf/util/json_util.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A stream of runs that others may write to.
template <typename Response>
class RunStream final : public ServerWriteStream<Response> {
 public:
  void SendRun(const v1::PipelineRun& run) {
    Response response;
    *response.mutable_run() = run;
    this->Send(std::move(response));
  }

 private:
  void OnEnd() override {}
};

// Plays runs: with the request id "fails" one that fails; with "waits" one that goes on until it
// is stopped at once; with "deaf" one that goes on for ever; both tell in a pipe what is asked of
// them. Else ExampleRun, 5 % slower than planned, through a stream that is cut.
class PlayedPipelines final : public v1::PipelineService::CallbackService {
 public:
  explicit PlayedPipelines(std::string pipe) : pipe_(std::move(pipe)) {}

  // The run that is told of from here on.
  void SetRun(const v1::PipelineRun& run) {
    const MutexLock lock(mutex_);
    run_ = run;
  }

  v1::StartPipelineRequest last_request() {
    const MutexLock lock(mutex_);
    return request_;
  }

  grpc::ServerWriteReactor<v1::StartPipelineResponse>* StartPipeline(
      grpc::CallbackServerContext* /*context*/, const v1::StartPipelineRequest* request) override {
    auto stream = std::make_shared<RunStream<v1::StartPipelineResponse>>();
    const MutexLock lock(mutex_);
    request_ = *request;
    const v1::PipelineSpec spec =
        request->pipeline().empty() ? request->inline_pipeline() : ExamplePipeline();
    run_ = ExampleRun(**PlanOf(spec, request->choice()), 1.05);
    run_.set_rehearsal(request->rehearsal());
    v1::PipelineRun begun = run_;
    begun.set_state(v1::PIPELINE_RUN_STATE_RUNNING);
    if (request->request_id() == "fails") {
      run_.set_state(v1::PIPELINE_RUN_STATE_FAILED);
      run_.set_error("worker node-b is lost");
      run_.set_error_code(14);
      stream->SendRun(run_);
      stream->End(absl::OkStatus());
    } else if (request->request_id() == "waits" || request->request_id() == "deaf") {
      waiting_ = stream;
      stream->SendRun(begun);
      Tell("started");
    } else {
      stream->SendRun(begun);
      stream->End(absl::UnavailableError("cut"));
    }
    return RunStream<v1::StartPipelineResponse>::Serve(stream);
  }

  grpc::ServerWriteReactor<v1::WatchPipelineRunResponse>* WatchPipelineRun(
      grpc::CallbackServerContext* /*context*/,
      const v1::WatchPipelineRunRequest* request) override {
    auto stream = std::make_shared<RunStream<v1::WatchPipelineRunResponse>>();
    const MutexLock lock(mutex_);
    if (request->id() == run_.id()) stream->SendRun(run_);
    stream->End(request->id() == run_.id()
                    ? absl::OkStatus()
                    : absl::NotFoundError(absl::StrCat("pipeline run ", request->id())));
    return RunStream<v1::WatchPipelineRunResponse>::Serve(stream);
  }

  grpc::ServerUnaryReactor* StopPipelineRun(grpc::CallbackServerContext* context,
                                            const v1::StopPipelineRunRequest* request,
                                            v1::StopPipelineRunResponse* /*response*/) override {
    const MutexLock lock(mutex_);
    if (request_.request_id() == "waits" && request->now()) {
      run_.set_state(v1::PIPELINE_RUN_STATE_STOPPED);
      waiting_->SendRun(run_);
      waiting_->End(absl::OkStatus());
      waiting_ = nullptr;
    } else if (waiting_ != nullptr) {
      Tell(request->now() ? "stopping at once" : "stopping");
    }
    return Answer(context);
  }

  grpc::ServerUnaryReactor* ListPipelineRuns(grpc::CallbackServerContext* context,
                                             const v1::ListPipelineRunsRequest* /*request*/,
                                             v1::ListPipelineRunsResponse* response) override {
    const MutexLock lock(mutex_);
    *response->add_runs() = run_;
    return Answer(context);
  }

  grpc::ServerUnaryReactor* CreatePipeline(grpc::CallbackServerContext* context,
                                           const v1::CreatePipelineRequest* request,
                                           v1::CreatePipelineResponse* response) override {
    const MutexLock lock(mutex_);
    registered_ = request->pipeline();
    response->set_revision(7);
    return Answer(context);
  }

  grpc::ServerUnaryReactor* GetPipeline(grpc::CallbackServerContext* context,
                                        const v1::GetPipelineRequest* /*request*/,
                                        v1::GetPipelineResponse* response) override {
    *response->mutable_pipeline() = ExamplePipeline();
    return Answer(context);
  }

  grpc::ServerUnaryReactor* ListPipelines(grpc::CallbackServerContext* context,
                                          const v1::ListPipelinesRequest* /*request*/,
                                          v1::ListPipelinesResponse* response) override {
    const MutexLock lock(mutex_);
    *response->add_pipelines() = registered_;
    return Answer(context);
  }

  grpc::ServerUnaryReactor* DeletePipeline(grpc::CallbackServerContext* context,
                                           const v1::DeletePipelineRequest* /*request*/,
                                           v1::DeletePipelineResponse* /*response*/) override {
    return Answer(context);
  }

 private:
  void Tell(const std::string& line) const { std::ofstream(pipe_) << line << std::endl; }

  const std::string pipe_;
  Mutex mutex_;
  v1::StartPipelineRequest request_ ABSL_GUARDED_BY(mutex_);
  v1::PipelineRun run_ ABSL_GUARDED_BY(mutex_);
  v1::PipelineSpec registered_ ABSL_GUARDED_BY(mutex_);
  // That of the run which goes on until it is stopped.
  std::shared_ptr<RunStream<v1::StartPipelineResponse>> waiting_ ABSL_GUARDED_BY(mutex_);
};

class PipelineRunCommandsTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(::mkfifo(folder_.PathOf("told").c_str(), 0600), 0);
    const std::string address = absl::StrCat("unix:", folder_.PathOf("controller.sock"));
    controller_ = " --controller " + address;
    ASSERT_OK_AND_ASSIGN(server_,
                         RpcServer::Start({.addresses = {address}, .services = {&pipelines_}}));
  }

  ProgramResult Pipeline(const std::string& arguments) {
    return Crossmesh(absl::StrCat("pipeline ", arguments, controller_));
  }

  // A run of that request id, interrupted so often, whenever something is told of it.
  ProgramResult RunInterrupted(const std::string& request_id, int interrupts) {
    std::string command = absl::StrCat(
        "exec 3<>", folder_.PathOf("told"),
        "; \"$CROSSMESH\" pipeline run examples/pipeline.json --iterations 9 --request-id ",
        request_id, controller_, " & ");
    for (int i = 0; i < interrupts; ++i) {
      absl::StrAppend(&command, "read line <&3; echo $line; kill -INT $!; ");
    }
    return RunShell(command + "wait $!");
  }

  const TemporaryFolder folder_;
  PlayedPipelines pipelines_{folder_.PathOf("told")};
  std::unique_ptr<RpcServer> server_;
  std::string controller_;
};

TEST_F(PipelineRunCommandsTest, ARehearsalIsFollowedAndReported) {
  const ProgramResult result = Pipeline(
      "rehearse examples/pipeline.json --schedule 1f1b --no-checksums --iteration-deadline 90s "
      "--rejoin-limit 2s --stop-at-failure");
  EXPECT_EQ(result.exit_status, 0) << result.error;
  EXPECT_EQ(result.out, PipelineRunText(ExampleRunOf("1f1b", 1.05)));
  EXPECT_THAT(result.error, HasSubstr("pr-0123456789abcdef: DONE, 1 failed"));
  const v1::StartPipelineRequest request = pipelines_.last_request();
  EXPECT_TRUE(request.rehearsal());
  EXPECT_EQ(request.iterations(), 3);
  EXPECT_EQ(request.choice().schedule(), "1f1b");
  EXPECT_EQ(request.request_id().size(), 32);
  EXPECT_TRUE(request.has_checksums());
  EXPECT_FALSE(request.checksums());
  EXPECT_EQ(request.iteration_deadline().seconds(), 90);
  EXPECT_FALSE(request.has_stall_limit());
  EXPECT_EQ(request.rejoin_limit().seconds(), 2);
  EXPECT_TRUE(request.stop_at_failure());
}

TEST_F(PipelineRunCommandsTest, ARunOfARegisteredPipelineIsOneDocument) {
  const ProgramResult result = Pipeline("run --pipeline u-net --iterations 1000 --json");
  EXPECT_EQ(result.exit_status, 0) << result.error;
  const nlohmann::json document = nlohmann::json::parse(result.out);
  EXPECT_EQ(document["state"], "PIPELINE_RUN_STATE_DONE");
  EXPECT_EQ(document["failed_iterations"], "1");
  EXPECT_EQ(document["measurement"]["ranks"].size(), 4);
  const v1::StartPipelineRequest request = pipelines_.last_request();
  EXPECT_FALSE(request.rehearsal());
  EXPECT_EQ(request.pipeline(), "u-net");
  EXPECT_EQ(request.iterations(), 1000);
  EXPECT_FALSE(request.has_checksums());
}

TEST_F(PipelineRunCommandsTest, ARunThatFailedIsAnErrorBelowItsReport) {
  const ProgramResult result = Pipeline("rehearse examples/pipeline.json --request-id fails");
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_THAT(result.out, HasSubstr("state         FAILED"));
  EXPECT_THAT(result.error, HasSubstr("pipeline run pr-0123456789abcdef ended FAILED: "
                                      "worker node-b is lost"));
}

TEST_F(PipelineRunCommandsTest, WhatWasMeasuredIsDrawnAndWrittenBack) {
  const std::string svg = folder_.PathOf("run.svg"), times = folder_.PathOf("times.json");
  const ProgramResult result =
      Pipeline(absl::StrCat("rehearse --pipeline u-net --svg ", svg, " --write-times ", times));
  ASSERT_EQ(result.exit_status, 0) << result.error;
  EXPECT_THAT(ReadAll(svg), AllOf(HasSubstr("; measured "), HasSubstr(">rank 3, planned<")));

  v1::PipelineSpec written;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(ReadAll(times), &written).ok());
  const v1::PipelineSpec example = ExamplePipeline();
  const v1::PipelinePlan plan = (*PlanOf(example, {}))->Summary();
  for (const v1::PipelineTransferSummary& transfer : plan.transfers()) {
    const v1::PipelineEdge& edge = written.edges(transfer.edge());
    const double seconds = transfer.backward() ? edge.backward_seconds() : edge.forward_seconds();
    EXPECT_DOUBLE_EQ(seconds, 1.05 * transfer.seconds());
  }
  // Nothing else is changed, and it is taken as any other file.
  for (v1::PipelineEdge& edge : *written.mutable_edges()) {
    edge.clear_forward_seconds();
    edge.clear_backward_seconds();
  }
  EXPECT_EQ(written.SerializeAsString(), example.SerializeAsString());
  EXPECT_EQ(Crossmesh("pipeline plan " + times).exit_status, 0);
}

// Processes computed the ops, so their times are known as well.
TEST_F(PipelineRunCommandsTest, ThePlanThatIsMadeFromTheTimesOfARunTakesThem) {
  const std::string times = folder_.PathOf("times.json");
  const ProgramResult run =
      Pipeline("run --pipeline u-net --schedule 1f1b --iterations 3 --write-times " + times);
  ASSERT_EQ(run.exit_status, 0) << run.error;
  v1::PipelineSpec written;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(ReadAll(times), &written).ok());
  const v1::PipelineSpec example = ExamplePipeline();
  for (int i = 0; i < example.stages_size(); ++i) {
    const v1::PipelineStage &stage = written.stages(i), &before = example.stages(i);
    EXPECT_NEAR(stage.forward_seconds(), 1.05 * before.forward_seconds(), 1e-9);
    EXPECT_NEAR(stage.input_gradient_seconds(), 1.05 * before.input_gradient_seconds(), 1e-9);
    EXPECT_NEAR(stage.weight_gradient_seconds(), 1.05 * before.weight_gradient_seconds(), 1e-9);
  }
  const ProgramResult plan =
      Crossmesh("pipeline plan " + times + " --schedule 1f1b --delay-weight-gradients --json");
  ASSERT_EQ(plan.exit_status, 0) << plan.error;
  const nlohmann::json ranks = nlohmann::json::parse(plan.out)["ranks"];
  const v1::PipelinePlan first = (*PlanOf(example, ChoiceOf("1f1b")))->Summary();
  ASSERT_EQ(ranks.size(), 4);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_NEAR(ranks[rank]["busy_seconds"].get<double>(), 1.05 * first.ranks(rank).busy_seconds(),
                1e-6);
  }
}

TEST_F(PipelineRunCommandsTest, PairsHaveATimeByAFlagWhereNothingIsRun) {
  std::string text;
  ASSERT_TRUE(google::protobuf::util::MessageToJsonString(DownAndUp(8), &text).ok());
  const std::string file = folder_.PathOf("pipeline.json"), svg = folder_.PathOf("run.svg");
  std::ofstream(file) << text;
  const std::string plan = absl::StrCat("pipeline plan ", file, " --schedule dual_pipe_v");
  const ProgramResult in_turn = Crossmesh(plan + " --json");
  const ProgramResult fused = Crossmesh(plan + " --json --pair-seconds 0.022 --svg " + svg);
  ASSERT_EQ(fused.exit_status, 0) << fused.error;
  const nlohmann::json one = nlohmann::json::parse(fused.out);
  EXPECT_THAT(one["rank_ops"][0].get<std::string>(), HasSubstr(" 0F3& 3B1 "));
  EXPECT_LT(one["predicted_seconds"], nlohmann::json::parse(in_turn.out)["predicted_seconds"]);
  EXPECT_THAT(ReadAll(svg), HasSubstr(">rank 1<"));
  EXPECT_THAT(Crossmesh(plan + " --pair-seconds 0.01").error,
              HasSubstr("pairs[0].seconds: expected at least the 0.02 of the longer op"));
  EXPECT_THAT(Pipeline(absl::StrCat("rehearse ", file, " --pair-seconds 0.022")).error,
              HasSubstr("--pair-seconds"));
}

TEST_F(PipelineRunCommandsTest, AnInterruptStopsTheRunAndASecondOneAtOnce) {
  const ProgramResult result = RunInterrupted("waits", 2);
  EXPECT_EQ(result.exit_status, 4);
  EXPECT_THAT(result.out, AllOf(HasSubstr("started\nstopping\n"), HasSubstr("STOPPED")));
  EXPECT_THAT(result.error, AllOf(HasSubstr("stopping after this iteration"),
                                  HasSubstr("stopping it at once"), HasSubstr("ended STOPPED")));
}

TEST_F(PipelineRunCommandsTest, AThirdInterruptEndsTheProgram) {
  const ProgramResult result = RunInterrupted("deaf", 3);
  EXPECT_EQ(result.exit_status, 130);
  EXPECT_EQ(result.out, "started\nstopping\nstopping at once\n");
}

TEST_F(PipelineRunCommandsTest, RunsAreListedShownAndStopped) {
  ASSERT_EQ(Pipeline("rehearse examples/pipeline.json --schedule 1f1b").exit_status, 0);
  const ProgramResult list = Pipeline("show");
  EXPECT_THAT(list.out, AllOf(HasSubstr("RUN "), HasSubstr("pr-0123456789abcdef  DONE"),
                              HasSubstr("rehearsal"), HasSubstr("2026-11-23")));
  EXPECT_EQ(nlohmann::json::parse(Pipeline("show --json").out)["runs"].size(), 1);
  EXPECT_EQ(Pipeline("show pr-0123456789abcdef").out, PipelineRunText(ExampleRunOf("1f1b", 1.05)));
  const ProgramResult none = Pipeline("show pr-1");
  EXPECT_EQ(none.exit_status, 1);
  EXPECT_THAT(none.error, HasSubstr("pipeline run pr-1"));
  const ProgramResult late = Pipeline("stop pr-0123456789abcdef");
  EXPECT_EQ(late.exit_status, 1);
  EXPECT_THAT(late.error, HasSubstr("pipeline run pr-0123456789abcdef: expected one that runs, "
                                    "found it DONE already"));
}

TEST_F(PipelineRunCommandsTest, ARunThatGoesOnIsStopped) {
  v1::PipelineRun run = ExampleRunOf("1f1b", 1.05);
  run.set_state(v1::PIPELINE_RUN_STATE_RUNNING);
  pipelines_.SetRun(run);
  const std::string stop = "stop " + run.id();
  EXPECT_EQ(Pipeline(stop).out,
            absl::StrCat("pipeline run ", run.id(), " ends after its iteration\n"));
  EXPECT_EQ(Pipeline(stop + " --now").out,
            absl::StrCat("pipeline run ", run.id(), " ends at once\n"));
}

TEST_F(PipelineRunCommandsTest, PipelinesAreRegisteredListedAndDeleted) {
  for (const char* name : {"create", "register", "put"}) {
    EXPECT_EQ(Pipeline(absl::StrCat(name, " examples/pipeline.json")).out,
              "pipeline \"u-net\": 4 stages on 4 ranks, revision 7\n");
  }
  EXPECT_EQ(Pipeline("list").out,
            "NAME   RANKS  STAGES  EDGES  MICROBATCHES\n"
            "-----  -----  ------  -----  ------------\n"
            "u-net      4       4      4            16\n");
  EXPECT_EQ(Pipeline("delete u-net").out, "pipeline \"u-net\" deleted\n");
  std::ofstream(folder_.PathOf("nameless.json")) << "{}";
  EXPECT_THAT(Pipeline("create " + folder_.PathOf("nameless.json")).error,
              HasSubstr("expected a name, found none"));
}

}  // namespace
}  // namespace crossmesh
