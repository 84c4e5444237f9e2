#include "controller/requests/bulk_service.h"

#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/server.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "controller/requests/request_budget.h"
#include "crossmesh/v1/mesh_service.grpc.pb.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::HasSubstr;

// Keeps requests of one method until it is told to answer; another one it answers at once.
class Meshes final : public BulkService<v1::MeshService> {
 public:
  explicit Meshes(RequestBudget& budget) : BulkService(budget) {
    ServeUnary<v1::CreateMeshRequest, v1::CreateMeshResponse>(
        "CreateMesh", [this](auto* context, auto request, auto* /*response*/) {
          grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
          const MutexLock lock(mutex_);
          kept_.emplace_back(std::move(request), reactor);
          came_.SignalAll();
          return reactor;
        });
    ServeUnary<v1::GetMeshRequest, v1::GetMeshResponse>(
        "GetMesh", [](auto* context, const auto& request, auto* response) {
          response->set_revision(static_cast<int64_t>(request->name().size()));
          grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
          reactor->Finish(grpc::Status::OK);
          return reactor;
        });
  }

  void WaitUntilKept(size_t count) {
    const MutexLock lock(mutex_);
    while (kept_.size() < count) came_.Wait(mutex_);
  }
  void AnswerAll() {
    std::vector<Kept> kept;
    {
      const MutexLock lock(mutex_);
      kept = std::exchange(kept_, {});
    }
    for (auto& [request, reactor] : kept) {
      request.reset();
      reactor->Finish(grpc::Status::OK);
    }
  }

 private:
  using Kept = std::pair<BulkRequest<v1::CreateMeshRequest>, grpc::ServerUnaryReactor*>;

  Mutex mutex_;
  CondVar came_;
  std::vector<Kept> kept_ ABSL_GUARDED_BY(mutex_);
};

class BulkServiceTest : public testing::Test {
 protected:
  static constexpr int64_t kMebibyte = 1 << 20;

  BulkServiceTest() {
    auto server = RpcServer::Start({.addresses = {"unix:" + folder_.PathOf("s")},
                                    .services = {&meshes_},
                                    .message_bytes_max = RpcServer::kBulkMessageBytesMax});
    CHECK_OK(server);
    server_ = *std::move(server);
    auto channel = BuildRpcChannel({.address = server_->addresses()[0]});
    CHECK_OK(channel);
    channel_ = *std::move(channel);
  }
  ~BulkServiceTest() override {
    meshes_.AnswerAll();
    calls_.clear();
  }

  // Of a mesh with so many bytes of text, which is in the message and beside it as bytes.
  absl::Status Create(int64_t bytes) {
    v1::CreateMeshRequest request;
    request.mutable_mesh()->set_devices(std::string(static_cast<size_t>(bytes), 'x'));
    v1::CreateMeshResponse response;
    grpc::ClientContext context;
    SetDeadline(context, kRpcDeadlineDefault);
    return FromGrpcStatus(
        v1::MeshService::NewStub(channel_)->CreateMesh(&context, request, &response));
  }
  // Until the service has it.
  void CreateAndKeep(int64_t bytes) {
    calls_.emplace_back("call", [this, bytes] { EXPECT_OK(Create(bytes)); });
    meshes_.WaitUntilKept(calls_.size());
  }
  absl::StatusOr<int64_t> Get(const std::string& name) {
    v1::GetMeshRequest request;
    request.set_name(name);
    v1::GetMeshResponse response;
    grpc::ClientContext context;
    SetDeadline(context, kRpcDeadlineDefault);
    const grpc::Status status =
        v1::MeshService::NewStub(channel_)->GetMesh(&context, request, &response);
    if (!status.ok()) return FromGrpcStatus(status);
    return response.revision();
  }

  const TemporaryFolder folder_;
  RequestBudget budget_{8 * kMebibyte};
  Meshes meshes_{budget_};
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::vector<Thread> calls_;
};

TEST_F(BulkServiceTest, LargeRequestsBeyondTheBudgetAreRefusedAndSmallOnesAnswered) {
  for (int i = 0; i < 3; ++i) CreateAndKeep(kMebibyte);
  EXPECT_GT(budget_.taken(), 6 * kMebibyte);
  EXPECT_THAT(Create(kMebibyte),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("try again in 1s")));
  EXPECT_THAT(Get("small"), IsOkAndHolds(5));

  meshes_.AnswerAll();
  for (Thread& call : calls_) call.Join();
  calls_.clear();
  EXPECT_EQ(budget_.taken(), 0);
  CreateAndKeep(kMebibyte);
}

TEST_F(BulkServiceTest, BytesThatAreNoMessageAreRefusedByType) {
  grpc::GenericStub stub(channel_);
  grpc::ClientContext context;
  SetDeadline(context, kRpcDeadlineDefault);
  const grpc::Slice slice(std::string("\xff\xff"));
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  Mutex mutex;
  CondVar ended;
  std::optional<absl::Status> status;
  stub.UnaryCall(&context, "/crossmesh.v1.MeshService/GetMesh", {}, &request, &response,
                 [&](const grpc::Status& end) {
                   const MutexLock lock(mutex);
                   status = FromGrpcStatus(end);
                   ended.SignalAll();
                 });
  const MutexLock lock(mutex);
  while (!status.has_value()) ended.Wait(mutex);
  EXPECT_THAT(*status, StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("one message crossmesh.v1.GetMeshRequest")));
  EXPECT_EQ(budget_.taken(), 0);
}

TEST_F(BulkServiceTest, OneThatNeverFitsIsRefusedAlone) {
  EXPECT_THAT(Create(kMebibyte * 39 / 10),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("memory of a request")));
  EXPECT_THAT(Get(""), IsOkAndHolds(0));
}

}  // namespace
}  // namespace crossmesh
