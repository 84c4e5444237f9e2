#include "client/client.h"

#include "client/testing/answers.h"
#include "common/rpc/push_back.h"
#include "common/rpc/server.h"
#include "common/rpc/server_streams.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "crossmesh/v1/manifest_service.grpc.pb.h"
#include "crossmesh/v1/mesh_service.grpc.pb.h"
#include "crossmesh/v1/operation_service.grpc.pb.h"
#include "crossmesh/v1/pipeline_service.grpc.pb.h"
#include "crossmesh/v1/reshard_service.grpc.pb.h"

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename Response>
Response About(v1::OperationState state) {
  Response response;
  *response.mutable_operation() = OperationIn(state);
  return response;
}

template <typename Response>
Response About(v1::PipelineRunState state) {
  Response response;
  *response.mutable_run() = RunIn(state);
  return response;
}

// Sends these states and ends with this status.
template <typename Response, typename State>
class ScriptedStream final : public ServerWriteStream<Response> {
 public:
  using Stream = ServerWriteStream<Response>;

  static typename Stream::Reactor* Play(const std::vector<State>& states,
                                        const absl::Status& status) {
    auto stream = std::make_shared<ScriptedStream>();
    for (const State state : states) stream->Send(About<Response>(state));
    stream->End(status);
    return Stream::Serve(stream);
  }

 private:
  void OnEnd() override {}
};

// Starts the operation in its second stream only; both end before the operation has.
class BrittleReshards final : public v1::ReshardService::CallbackService {
 public:
  grpc::ServerWriteReactor<v1::ExecuteReshardResponse>* ExecuteReshard(
      grpc::CallbackServerContext* /*context*/, const v1::ExecuteReshardRequest* request) override {
    using Stream = ScriptedStream<v1::ExecuteReshardResponse, v1::OperationState>;
    if (request->request_id() == "refused") {
      return Stream::Play({}, absl::NotFoundError("mesh \"b\": there is none"));
    }
    if (++calls_ == 1) return Stream::Play({}, absl::CancelledError("the server stops"));
    return Stream::Play({v1::OPERATION_STATE_PREPARING}, absl::UnavailableError("cut"));
  }

 private:
  std::atomic<int> calls_ = 0;
};

// Comes to the end in its third stream.
class BrittleOperations final : public v1::OperationService::CallbackService {
 public:
  grpc::ServerWriteReactor<v1::WatchOperationResponse>* WatchOperation(
      grpc::CallbackServerContext* /*context*/, const v1::WatchOperationRequest* request) override {
    using Stream = ScriptedStream<v1::WatchOperationResponse, v1::OperationState>;
    // Goes on for ever, in streams that end at once.
    if (request->id() == "op-endless") return Stream::Play({}, absl::OkStatus());
    if (request->id() != "op-7") return Stream::Play({}, absl::NotFoundError("no operation"));
    switch (++calls_) {
      case 1:
        return Stream::Play({v1::OPERATION_STATE_RUNNING}, absl::OkStatus());
      case 2:
        return Stream::Play({v1::OPERATION_STATE_VERIFYING},
                            absl::ResourceExhaustedError("the reader is behind"));
      default:
        return Stream::Play({v1::OPERATION_STATE_COMMITTED}, absl::OkStatus());
    }
  }

 private:
  std::atomic<int> calls_ = 0;
};

// Starts a run in its second stream only, and comes to its end in the third that watches it.
class BrittlePipelines final : public v1::PipelineService::CallbackService {
 public:
  grpc::ServerWriteReactor<v1::StartPipelineResponse>* StartPipeline(
      grpc::CallbackServerContext* /*context*/, const v1::StartPipelineRequest* request) override {
    using Stream = ScriptedStream<v1::StartPipelineResponse, v1::PipelineRunState>;
    if (request->iterations() < 1) {
      return Stream::Play({}, absl::InvalidArgumentError("iterations: expected 1 or more"));
    }
    if (++starts_ == 1) return Stream::Play({}, absl::CancelledError("the server stops"));
    return Stream::Play({v1::PIPELINE_RUN_STATE_PREPARING}, absl::UnavailableError("cut"));
  }

  grpc::ServerWriteReactor<v1::WatchPipelineRunResponse>* WatchPipelineRun(
      grpc::CallbackServerContext* /*context*/,
      const v1::WatchPipelineRunRequest* request) override {
    using Stream = ScriptedStream<v1::WatchPipelineRunResponse, v1::PipelineRunState>;
    if (request->id() != "pr-7") return Stream::Play({}, absl::NotFoundError("no run"));
    switch (++watches_) {
      case 1:
        return Stream::Play({v1::PIPELINE_RUN_STATE_RUNNING}, absl::OkStatus());
      case 2:
        return Stream::Play({v1::PIPELINE_RUN_STATE_WAITING},
                            absl::ResourceExhaustedError("the reader is behind"));
      default:
        return Stream::Play({v1::PIPELINE_RUN_STATE_DONE}, absl::OkStatus());
    }
  }

  // Two to a page, however many are asked for.
  grpc::ServerUnaryReactor* ListPipelineRuns(grpc::CallbackServerContext* context,
                                             const v1::ListPipelineRunsRequest* request,
                                             v1::ListPipelineRunsResponse* response) override {
    last_page_size = request->page_size();
    *response->add_runs() = RunIn(v1::PIPELINE_RUN_STATE_RUNNING);
    *response->add_runs() = RunIn(v1::PIPELINE_RUN_STATE_DONE);
    response->set_next_page_token("more");
    return Answer(context);
  }

  grpc::ServerUnaryReactor* DeletePipeline(grpc::CallbackServerContext* context,
                                           const v1::DeletePipelineRequest* /*request*/,
                                           v1::DeletePipelineResponse* /*response*/) override {
    ++deletes;
    return Answer(context, absl::UnavailableError("cut"));
  }

  std::atomic<int> deletes = 0;
  std::atomic<int> last_page_size = 0;

 private:
  std::atomic<int> starts_ = 0;
  std::atomic<int> watches_ = 0;
};

class BrittleMeshes final : public v1::MeshService::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetMesh(grpc::CallbackServerContext* context,
                                    const v1::GetMeshRequest* request,
                                    v1::GetMeshResponse* response) override {
    ++calls;
    if (request->name() == "never") {
      return Answer(context, absl::CancelledError("the server stops"));
    }
    if (request->name() == "late" && calls < 3) {
      return Answer(context, absl::UnavailableError("not yet"));
    }
    if (request->name() == "busy" && calls < 3) {
      return Answer(context,
                    WithPushBack(absl::ResourceExhaustedError("too many"), absl::Milliseconds(10)));
    }
    if (request->name() == "full") return Answer(context, absl::ResourceExhaustedError("full"));
    response->mutable_mesh()->set_name(request->name());
    return Answer(context);
  }

  grpc::ServerUnaryReactor* ListMeshes(grpc::CallbackServerContext* context,
                                       const v1::ListMeshesRequest* request,
                                       v1::ListMeshesResponse* response) override {
    const bool first = request->page_token().empty();
    response->add_meshes()->set_name(first ? "a" : "b");
    if (first) response->set_next_page_token("more");
    return Answer(context);
  }

  grpc::ServerUnaryReactor* DeleteMesh(grpc::CallbackServerContext* context,
                                       const v1::DeleteMeshRequest* /*request*/,
                                       v1::DeleteMeshResponse* /*response*/) override {
    ++calls;
    return Answer(context, absl::UnavailableError("cut"));
  }

  std::atomic<int> calls = 0;
};

// Counts what arrives.
class CountingManifests final : public v1::ManifestService::CallbackService {
 public:
  grpc::ServerReadReactor<v1::PutManifestRequest>* PutManifest(
      grpc::CallbackServerContext* /*context*/, v1::PutManifestResponse* response) override {
    return Put::Serve(std::make_unique<Put>(), response);
  }

 private:
  class Put final : public ServerReadStream<v1::PutManifestRequest, v1::PutManifestResponse> {
    absl::Status OnMessage(v1::PutManifestRequest request) override {
      name_ += request.name();
      tensors_ += request.tensors_size();
      ++messages_;
      return absl::OkStatus();
    }
    absl::Status OnMessagesEnd(v1::PutManifestResponse& response) override {
      response.set_tensors(tensors_);
      response.set_revision(messages_);
      response.set_digest(name_);
      return absl::OkStatus();
    }
    std::string name_;
    int64_t tensors_ = 0;
    int64_t messages_ = 0;
  };
};

class ClientTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string address = absl::StrCat("unix:", folder_.PathOf("controller.sock"));
    ASSERT_OK_AND_ASSIGN(
        server_, RpcServer::Start(
                     {.addresses = {address},
                      .services = {&reshards_, &operations_, &pipelines_, &meshes_, &manifests_}}));
    ASSERT_OK_AND_ASSIGN(Client client, Client::Connect(address, {.retry_for = absl::Seconds(20)}));
    client_ = std::make_unique<Client>(std::move(client));
  }

  void SetRetryFor(absl::Duration duration) {
    const std::string address = client_->address();
    client_ = std::make_unique<Client>(Client::Connect(address, {.retry_for = duration}).value());
  }

  const TemporaryFolder folder_;
  BrittleReshards reshards_;
  BrittleOperations operations_;
  BrittlePipelines pipelines_;
  BrittleMeshes meshes_;
  CountingManifests manifests_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<Client> client_;
};

TEST_F(ClientTest, ExecuteTakesABrokenStreamUpUntilTheOperationHasEnded) {
  v1::ExecuteReshardRequest request;
  request.set_request_id("release-7");
  std::vector<std::string> states;
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation,
                       client_->Execute(request, [&states](const v1::Operation& now) {
                         states.push_back(StateName(now.state()));
                       }));
  EXPECT_EQ(operation.state(), v1::OPERATION_STATE_COMMITTED);
  EXPECT_THAT(states, ElementsAre("PREPARING", "RUNNING", "VERIFYING", "COMMITTED"));
}

TEST_F(ClientTest, ExecuteReturnsARefusalAtOnce) {
  v1::ExecuteReshardRequest request;
  request.set_request_id("refused");
  EXPECT_THAT(client_->Execute(request, [](const v1::Operation&) {}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("mesh \"b\"")));
}

TEST_F(ClientTest, StartReturnsTheOperationAsItBegins) {
  v1::ExecuteReshardRequest request;
  request.set_request_id("release-7");
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation, client_->Start(request));
  EXPECT_EQ(operation.id(), "op-7");
  EXPECT_EQ(operation.state(), v1::OPERATION_STATE_PREPARING);
  request.set_request_id("refused");
  EXPECT_THAT(client_->Start(request), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(ClientTest, ARequestThatIsTooLargeSaysHowElseToGiveItsManifest) {
  v1::ExecuteReshardRequest request;
  v1::Manifest& manifest = *request.mutable_spec()->mutable_inline_manifest();
  manifest.add_tensors()->set_name(std::string(5 << 20, 'a'));
  const auto refused = StatusIs(absl::StatusCode::kResourceExhausted,
                                AllOf(HasSubstr("expected at most 4194304 bytes, found 524"),
                                      HasSubstr("`crossmesh manifest create`")));
  EXPECT_THAT(client_->Start(request), refused);
  EXPECT_THAT(client_->Execute(request, [](const v1::Operation&) {}), refused);
}

TEST_F(ClientTest, WhatTakesLongerThanTheTimeForAllIsLeftAlone) {
  ASSERT_OK_AND_ASSIGN(Client client,
                       Client::Connect(client_->address(), {.timeout = absl::Milliseconds(300)}));
  EXPECT_THAT(client.Watch("op-endless", [](const v1::Operation&) {}),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("expected the operation's end within 300ms; operation op-endless "
                                 "may still be running")));
}

TEST_F(ClientTest, WatchSaysThatThereIsNoSuchOperation) {
  EXPECT_THAT(client_->Watch("op-8", [](const v1::Operation&) {}),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(ClientTest, AStartedPipelineIsFollowedOverBrokenStreamsUntilItsRunHasEnded) {
  v1::StartPipelineRequest request;
  request.set_request_id("night-7");
  request.set_iterations(3);
  std::vector<std::string> states;
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun run,
                       client_->StartPipeline(request, [&states](const v1::PipelineRun& now) {
                         states.push_back(StateName(now.state()));
                       }));
  EXPECT_EQ(run.id(), "pr-7");
  EXPECT_THAT(states, ElementsAre("PREPARING", "RUNNING", "WAITING", "DONE"));
}

TEST_F(ClientTest, APipelineThatIsRefusedIsSaidAtOnce) {
  EXPECT_THAT(client_->StartPipeline({}, [](const v1::PipelineRun&) {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("iterations")));
}

TEST_F(ClientTest, ARunIsWatchedToItsEnd) {
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun run,
                       client_->WatchPipelineRun("pr-7", [](const v1::PipelineRun&) {}));
  EXPECT_EQ(run.state(), v1::PIPELINE_RUN_STATE_DONE);
  EXPECT_THAT(client_->WatchPipelineRun("pr-8", [](const v1::PipelineRun&) {}),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(client_->WatchPipelineRun("", [](const v1::PipelineRun&) {}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(ClientTest, ARunAsItIsNowIsTheFirstThatAStreamSays) {
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun run, client_->GetPipelineRun("pr-7"));
  EXPECT_EQ(run.state(), v1::PIPELINE_RUN_STATE_RUNNING);
  EXPECT_THAT(client_->GetPipelineRun("pr-8"), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(ClientTest, NoMoreRunsAreAskedForThanAreWanted) {
  ASSERT_OK_AND_ASSIGN(const std::vector<v1::PipelineRun> runs, client_->ListPipelineRuns(3));
  EXPECT_EQ(runs.size(), 3);
  EXPECT_EQ(pipelines_.last_page_size, 1);
}

TEST_F(ClientTest, APipelineIsDeletedOnce) {
  EXPECT_THAT(client_->DeletePipeline("a"), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(pipelines_.deletes, 1);
}

TEST_F(ClientTest, ACallIsMadeAgainWhileTheControllerIsUnavailable) {
  ASSERT_OK_AND_ASSIGN(const v1::GetMeshResponse response, client_->GetMesh("late"));
  EXPECT_EQ(response.mesh().name(), "late");
  EXPECT_EQ(meshes_.calls, 3);
}

TEST_F(ClientTest, ACallIsMadeAgainWhenItWasTold) {
  ASSERT_OK_AND_ASSIGN(const v1::GetMeshResponse response, client_->GetMesh("busy"));
  EXPECT_EQ(response.mesh().name(), "busy");
  EXPECT_EQ(meshes_.calls, 3);
}

TEST_F(ClientTest, ARefusalWithoutATimeIsReturnedAtOnce) {
  EXPECT_THAT(client_->GetMesh("full"), StatusIs(absl::StatusCode::kResourceExhausted, "full"));
  EXPECT_EQ(meshes_.calls, 1);
}

TEST_F(ClientTest, ACancelNobodyAskedForIsUnavailable) {
  SetRetryFor(absl::ZeroDuration());
  EXPECT_THAT(client_->GetMesh("never"),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr(client_->address()), HasSubstr("the server stops"))));
  EXPECT_EQ(meshes_.calls, 1);
}

TEST_F(ClientTest, WhatCannotBeRepeatedIsCalledOnce) {
  EXPECT_THAT(client_->DeleteMesh("a"), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(meshes_.calls, 1);
}

TEST_F(ClientTest, ListsAreReadToTheLastPage) {
  ASSERT_OK_AND_ASSIGN(const std::vector<v1::Mesh> meshes, client_->ListMeshes());
  ASSERT_EQ(meshes.size(), 2);
  EXPECT_EQ(meshes[1].name(), "b");
}

TEST_F(ClientTest, ManifestsOfThousandsOfTensorsTravelInSeveralMessages) {
  std::vector<TensorSpec> tensors;
  for (int i = 0; i < 10'000; ++i) tensors.push_back({.name = absl::StrCat("t", i)});
  ASSERT_OK_AND_ASSIGN(const Manifest manifest, Manifest::Create(std::move(tensors)));
  ASSERT_OK_AND_ASSIGN(const v1::PutManifestResponse response,
                       client_->PutManifest("many", manifest));
  EXPECT_EQ(response.tensors(), 10'000);
  EXPECT_EQ(response.digest(), "many");
  EXPECT_EQ(response.revision(), 3);
}

}  // namespace
}  // namespace crossmesh
