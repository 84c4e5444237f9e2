#include "client/client.h"

#include "common/metrics/rpc_metrics.h"
#include "common/rpc/server.h"
#include "common/rpc/server_streams.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"

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

v1::Operation OperationIn(v1::OperationState state) {
  v1::Operation operation;
  operation.set_id("op-7");
  operation.set_state(state);
  return operation;
}

// Sends these states and ends with this status.
template <typename Response>
class ScriptedStream final : public ServerWriteStream<Response> {
 public:
  using Stream = ServerWriteStream<Response>;

  static typename Stream::Reactor* Play(const std::vector<v1::OperationState>& states,
                                        const absl::Status& status) {
    auto stream = std::make_shared<ScriptedStream>();
    for (const v1::OperationState state : states) {
      Response response;
      *response.mutable_operation() = OperationIn(state);
      stream->Send(std::move(response));
    }
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
    using Stream = ScriptedStream<v1::ExecuteReshardResponse>;
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
    using Stream = ScriptedStream<v1::WatchOperationResponse>;
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

class BrittleMeshes final : public v1::MeshService::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetMesh(grpc::CallbackServerContext* context,
                                    const v1::GetMeshRequest* request,
                                    v1::GetMeshResponse* response) override {
    ++calls;
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    if (request->name() == "never") {
      reactor->Finish(ToGrpcStatus(absl::CancelledError("the server stops")));
    } else if (request->name() == "late" && calls < 3) {
      reactor->Finish(ToGrpcStatus(absl::UnavailableError("not yet")));
    } else {
      response->mutable_mesh()->set_name(request->name());
      reactor->Finish(grpc::Status::OK);
    }
    return reactor;
  }

  grpc::ServerUnaryReactor* ListMeshes(grpc::CallbackServerContext* context,
                                       const v1::ListMeshesRequest* request,
                                       v1::ListMeshesResponse* response) override {
    const bool first = request->page_token().empty();
    response->add_meshes()->set_name(first ? "a" : "b");
    if (first) response->set_next_page_token("more");
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerUnaryReactor* DeleteMesh(grpc::CallbackServerContext* context,
                                       const v1::DeleteMeshRequest* /*request*/,
                                       v1::DeleteMeshResponse* /*response*/) override {
    ++calls;
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpcStatus(absl::UnavailableError("cut")));
    return reactor;
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
        server_, RpcServer::Start({.addresses = {address},
                                   .services = {&reshards_, &operations_, &meshes_, &manifests_},
                                   .metrics = &metrics_}));
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
  BrittleMeshes meshes_;
  CountingManifests manifests_;
  NullRpcMetrics metrics_;
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

TEST_F(ClientTest, WatchSaysThatThereIsNoSuchOperation) {
  EXPECT_THAT(client_->Watch("op-8", [](const v1::Operation&) {}),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(ClientTest, ACallIsMadeAgainWhileTheControllerIsUnavailable) {
  ASSERT_OK_AND_ASSIGN(const v1::GetMeshResponse response, client_->GetMesh("late"));
  EXPECT_EQ(response.mesh().name(), "late");
  EXPECT_EQ(meshes_.calls, 3);
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

TEST(OutcomeTest, KeepsTheOperationsCode) {
  v1::Operation operation = OperationIn(v1::OPERATION_STATE_PARTIAL);
  operation.set_error("worker node-1 is lost");
  operation.set_error_code(14);
  EXPECT_THAT(OutcomeOf(operation),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("operation op-7 ended PARTIAL: worker node-1 is lost")));
  EXPECT_OK(OutcomeOf(OperationIn(v1::OPERATION_STATE_COMMITTED)));
}

}  // namespace
}  // namespace crossmesh
