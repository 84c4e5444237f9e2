#pragma once

#include "common/mesh/topology.h"
#include "common/rpc/deadline.h"
#include "common/rpc/status_codec.h"
#include "common/testing/temporary_folder.h"
#include "controller/controller.h"
#include "controller/store/memory_store.h"
#include "controller/testing/fake_worker.h"
#include "crossmesh/v1/manifest_service.grpc.pb.h"
#include "crossmesh/v1/mesh_service.grpc.pb.h"
#include "crossmesh/v1/operation_service.grpc.pb.h"
#include "crossmesh/v1/reshard_service.grpc.pb.h"
#include "crossmesh/v1/worker_service.grpc.pb.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>
#include <gtest/gtest.h>

namespace crossmesh {

// A client's stream of responses, with a deadline.
template <typename Response>
class StreamReader {
 public:
  template <typename Open>
  explicit StreamReader(const Open& open) {
    SetDeadline(context_, absl::Minutes(1));
    reader_ = open(&context_);
  }

  // The stream's error where there is no next one; some error when it has ended with OK.
  absl::StatusOr<Response> Next() {
    Response response;
    if (reader_->Read(&response)) return response;
    const absl::Status status = FromGrpcStatus(reader_->Finish());
    ended_ = status.ok();
    return ended_ ? absl::UnknownError("the stream has ended") : status;
  }
  // With OK.
  bool ended() const { return ended_; }
  // The last response, when the stream has ended with OK; an error when there was none.
  absl::StatusOr<Response> Last() {
    absl::StatusOr<Response> last = absl::UnknownError("no response");
    while (true) {
      absl::StatusOr<Response> next = Next();
      if (ended_) return last;
      if (!next.ok()) return next;
      last = *std::move(next);
    }
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<Response>> reader_;
  bool ended_ = false;
};

// A controller that serves in a folder of the test's own, its clients, and fake workers.
class ControllerFixture : public ::testing::Test {
 protected:
  void TearDown() override;

  // Workers that fall silent are not lost: fakes beat only when they are told to. All controllers
  // of a test have one store; without it each has its own.
  void StartController(std::optional<Topology> topology = std::nullopt);
  // It ends, what runs or not; its workers go on.
  void EndController();
  // Worker w-HOST, which owns these devices; by default HOST.0.
  FakeWorker& AddWorker(const std::string& host, const std::string& devices = "",
                        std::optional<RankName> gpu = std::nullopt);

  // A client's call with a deadline.
  template <typename Stub, typename Request, typename Response>
  static absl::StatusOr<Response> Call(Stub& stub,
                                       grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                                    const Request&, Response*),
                                       const std::type_identity_t<Request>& request) {
    grpc::ClientContext context;
    SetDeadline(context);
    Response response;
    absl::Status status = FromGrpcStatus((stub.*method)(&context, request, &response));
    if (!status.ok()) return status;
    return response;
  }

  // The mesh's revision.
  absl::StatusOr<int64_t> CreateMesh(const std::string& name, const std::string& axes,
                                     const std::string& devices);
  // Tensors of 64 x 8 floats, a thousand to a message.
  absl::StatusOr<v1::PutManifestResponse> PutManifest(const std::string& name,
                                                      const std::vector<std::string>& tensors);
  std::vector<v1::Worker> ListWorkers();
  // Follows an execution to its end: the last operation, which has the report.
  absl::StatusOr<v1::Operation> Execute(
      const v1::ExecuteReshardRequest& request,
      const std::function<void(const v1::Operation&)>& on_change = [](const v1::Operation&) {});
  StreamReader<v1::ExecuteReshardResponse> StartExecution(const v1::ExecuteReshardRequest& request);

  // A mesh of the request's own, and one layout for all tensors.
  static void SetSide(v1::ReshardSide& side, const std::string& axes, const std::string& devices,
                      const std::string& layout);
  // One layout for all tensors.
  static void AddRule(v1::ReshardSide& side, const std::string& layout);
  static void AddTensor(v1::ReshardSpec& spec, int64_t length);

  // Asks again and again, for 30 s at most.
  static void WaitUntil(const std::function<bool()>& condition);

  const TemporaryFolder folder_;
  const std::string address_ = "unix:" + folder_.PathOf("controller.sock");
  std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<Controller> controller_;
  std::unique_ptr<v1::MeshService::Stub> meshes_;
  std::unique_ptr<v1::ManifestService::Stub> manifests_;
  std::unique_ptr<v1::ReshardService::Stub> reshards_;
  std::unique_ptr<v1::OperationService::Stub> operations_;
  std::unique_ptr<v1::WorkerService::Stub> sessions_;
  std::vector<std::unique_ptr<FakeWorker>> workers_;
};

}  // namespace crossmesh
