// A controller that has taken over, and one that does not know that it was replaced, at a worker
// whose process computes.

#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/status_codec.h"
#include "common/testing/patience.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "crossmesh/v1/pipeline_execution_service.grpc.pb.h"
#include "worker/agent/testing/fake_controller.h"
#include "worker/pipeline/pipeline_loop.h"
#include "worker/worker.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ProgramRequest = v1::RunProgramRequest;
using ProgramResponse = v1::RunProgramResponse;

// A controller's end of a RunProgram call, with a deadline. The program's one rank computes 0F0 and
// 0B0.
class ProgramCall {
 public:
  // `incarnation`: the worker's, as the controller knows it.
  ProgramCall(const Worker& worker, uint64_t epoch, uint64_t operation, uint64_t incarnation = 0) {
    const auto channel = BuildRpcChannel({.address = worker.execution_address()});
    EXPECT_OK(channel.status());
    stub_ = v1::PipelineExecutionService::NewStub(*channel);
    SetDeadline(context_, absl::Seconds(30));
    stream_ = stub_->RunProgram(&context_);
    ProgramRequest request;
    ProgramRequest::Start& start = *request.mutable_start();
    start.set_run_id("pr-1");
    start.set_operation(operation);
    start.set_epoch(epoch);
    start.set_token("0123456789abcdef");
    start.set_pipeline("one");
    start.mutable_stall_limit()->set_seconds(5);
    if (epoch > 7) start.set_complete_iteration(0);
    ProgramRequest::Peer& peer = *start.add_peers();
    peer.set_worker("wa");
    peer.set_devices("a.0");
    peer.set_incarnation(incarnation);
    stream_->Write(request);
    v1::PipelineProgram program;
    program.add_ranks()->set_actions("0F0 0B0");
    program.add_stages();
    v1::PipelineProgram::Microbatches& microbatches = *program.add_microbatches();
    microbatches.set_count(1);
    microbatches.set_samples(1);
    request.mutable_piece()->set_data(program.SerializeAsString());
    request.mutable_piece()->set_last(true);
    stream_->Write(request);
  }

  ProgramResponse Read() {
    ProgramResponse response;
    EXPECT_TRUE(stream_->Read(&response));
    return response;
  }
  // After all that is still said.
  absl::Status End() {
    ProgramResponse response;
    while (stream_->Read(&response)) {
    }
    return FromGrpcStatus(stream_->Finish());
  }
  void BeginIteration(int64_t iteration) {
    ProgramRequest request;
    request.mutable_begin_iteration()->set_iteration(iteration);
    stream_->Write(request);
  }
  void Stop() {
    ProgramRequest request;
    request.mutable_stop();
    stream_->Write(request);
  }

 private:
  std::unique_ptr<v1::PipelineExecutionService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<ProgramRequest, ProgramResponse>> stream_;
};

class ProgramTakeoverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    controller_ = *FakeController::Start(absl::StrCat("unix:", folder_.PathOf("controller")));
    ASSERT_OK_AND_ASSIGN(worker_,
                         Worker::Create({.name = "wa",
                                         .devices = {{"a", 0}},
                                         .controllers = {controller_->address()},
                                         .listen = absl::StrCat("unix:", folder_.PathOf("wa")),
                                         .computes_pipelines = true}));
  }

  const TemporaryFolder folder_;
  std::unique_ptr<FakeController> controller_;
  std::unique_ptr<Worker> worker_;
};

TEST_F(ProgramTakeoverTest, AStartThatIsForTheProcessBeforeIsLeftToBeMadeAgain) {
  for (const Patience patience; controller_->seen("wa").registrations == 0;) patience.Check();
  const uint64_t own = controller_->seen("wa").registration.incarnation();
  ProgramCall for_former(*worker_, /*epoch=*/7, /*operation=*/100, own - 1);
  EXPECT_THAT(for_former.End(), StatusIs(absl::StatusCode::kUnavailable,
                                         HasSubstr(absl::StrCat("for process ", own - 1))));
  ProgramCall for_this(*worker_, /*epoch=*/7, /*operation=*/200, own);
  EXPECT_TRUE(for_this.Read().has_accepted());
  for_this.Stop();
  EXPECT_OK(for_this.End());
}

TEST_F(ProgramTakeoverTest, AStartOfAHigherEpochEndsTheProgramThatStillRuns) {
  ProgramCall former(*worker_, /*epoch=*/7, /*operation=*/100);
  EXPECT_TRUE(former.Read().has_accepted());
  ASSERT_OK_AND_ASSIGN(auto former_loop, worker_->WaitForPipeline());
  former.BeginIteration(1);
  ASSERT_EQ(former_loop->Next().kind, PipelineStep::Kind::kOp);

  ProgramCall next(*worker_, /*epoch=*/8, /*operation=*/200);
  EXPECT_TRUE(next.Read().has_accepted());
  EXPECT_THAT(former.End(), StatusIs(absl::StatusCode::kAborted,
                                     HasSubstr("another start, of controller epoch 8")));
  // The process hears what it would hear of an iteration that fails, and goes on with the next one.
  former_loop->Done();
  EXPECT_EQ(former_loop->Next().kind, PipelineStep::Kind::kOver);
  former_loop.reset();
  ASSERT_OK_AND_ASSIGN(const auto loop, worker_->WaitForPipeline());
  PipelineStep step = loop->Next();
  EXPECT_EQ(step.kind, PipelineStep::Kind::kComplete);
  EXPECT_EQ(step.iteration, 0);
  next.BeginIteration(2);
  for (int op = 0; op < 2; ++op) {
    step = loop->Next();
    ASSERT_EQ(step.kind, PipelineStep::Kind::kOp);
    EXPECT_EQ(step.op->iteration, 2);
    loop->Done();
  }
  EXPECT_EQ(next.Read().iteration_report().code(), 0);
  next.Stop();
  step = loop->Next();
  EXPECT_EQ(step.kind, PipelineStep::Kind::kComplete);
  EXPECT_EQ(step.iteration, 2);
  EXPECT_OK(next.End());
}

TEST_F(ProgramTakeoverTest, AStartOfALowerEpochIsRefused) {
  ProgramCall next(*worker_, /*epoch=*/8, /*operation=*/200);
  EXPECT_TRUE(next.Read().has_accepted());
  ProgramCall former(*worker_, /*epoch=*/7, /*operation=*/100);
  EXPECT_THAT(former.End(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                     AllOf(HasSubstr("epoch 7"), HasSubstr("at least 8"))));
  next.Stop();
  EXPECT_OK(next.End()) << "it is not disturbed";
}

TEST_F(ProgramTakeoverTest, AStartThatComesLateIsRefused) {
  ProgramCall next(*worker_, /*epoch=*/8, /*operation=*/201);
  EXPECT_TRUE(next.Read().has_accepted());
  ProgramCall late(*worker_, /*epoch=*/8, /*operation=*/200);
  EXPECT_THAT(late.End(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("the newest start")));
  next.Stop();
  EXPECT_OK(next.End());
}

}  // namespace
}  // namespace crossmesh
