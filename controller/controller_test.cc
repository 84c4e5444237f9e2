#include "controller/controller.h"

#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/status_codec.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "controller/testing/fake_worker.h"
#include "crossmesh/v1/manifest_service.grpc.pb.h"
#include "crossmesh/v1/mesh_service.grpc.pb.h"
#include "crossmesh/v1/operation_service.grpc.pb.h"
#include "crossmesh/v1/reshard_service.grpc.pb.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// A client's call with a deadline.
template <typename Call>
absl::Status Unary(const Call& call) {
  grpc::ClientContext context;
  SetDeadline(context);
  return FromGrpcStatus(call(&context));
}

class ControllerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    address_ = absl::StrCat("unix:", folder_.PathOf("controller.sock"));
    StartController();
  }
  void TearDown() override {
    workers_.clear();
    controller_.reset();
  }

  void StartController() {
    ASSERT_OK_AND_ASSIGN(controller_, Controller::Create({.listen = {address_},
                                                          .metrics_listen = "",
                                                          .lost_after = absl::Minutes(10)}));
    ASSERT_OK_AND_ASSIGN(const auto channel, BuildRpcChannel({.address = address_}));
    meshes_ = v1::MeshService::NewStub(channel);
    manifests_ = v1::ManifestService::NewStub(channel);
    reshards_ = v1::ReshardService::NewStub(channel);
    operations_ = v1::OperationService::NewStub(channel);
    workers_stub_ = v1::WorkerService::NewStub(channel);
  }
  FakeWorker& AddWorker(const std::string& host) {
    workers_.push_back(
        std::make_unique<FakeWorker>(FakeWorker::Options{.folder = folder_.path(),
                                                         .name = absl::StrCat("w-", host),
                                                         .devices = absl::StrCat(host, ".0"),
                                                         .controller = address_}));
    return *workers_.back();
  }
  // Four workers, a source mesh over two of them and a destination mesh of two replicas.
  void StartCluster() {
    for (const char* host : {"a", "b", "c", "d"}) AddWorker(host);
    EXPECT_OK(CreateMesh("train", "shard=2", "a.0,b.0").status());
    EXPECT_OK(CreateMesh("serve", "replica=2", "c.0,d.0").status());
    EXPECT_OK(PutManifest("model", {"w"}).status());
  }

  absl::StatusOr<int64_t> CreateMesh(const std::string& name, const std::string& axes,
                                     const std::string& devices) {
    v1::CreateMeshRequest request;
    request.mutable_mesh()->set_name(name);
    request.mutable_mesh()->set_axes(axes);
    request.mutable_mesh()->set_devices(devices);
    v1::CreateMeshResponse response;
    const absl::Status status = Unary([&](grpc::ClientContext* context) {
      return meshes_->CreateMesh(context, request, &response);
    });
    if (!status.ok()) return status;
    return response.revision();
  }

  // Tensors of 64 x 8 floats, a thousand to a message.
  absl::StatusOr<v1::PutManifestResponse> PutManifest(const std::string& name,
                                                      const std::vector<std::string>& tensors) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::PutManifestResponse response;
    const auto writer = manifests_->PutManifest(&context, &response);
    v1::PutManifestRequest request;
    request.set_name(name);
    request.set_tensor_count(static_cast<int64_t>(tensors.size()));
    for (size_t i = 0; i < tensors.size(); ++i) {
      v1::TensorSpec& tensor = *request.add_tensors();
      tensor.set_name(tensors[i]);
      tensor.set_dtype("F32");
      tensor.add_shape(64);
      tensor.add_shape(8);
      if (i % 1000 == 999) {
        writer->Write(request);
        request.Clear();
      }
    }
    writer->Write(request);
    writer->WritesDone();
    const absl::Status status = FromGrpcStatus(writer->Finish());
    if (!status.ok()) return status;
    return response;
  }

  static v1::ExecuteReshardRequest Request(const std::string& request_id) {
    v1::ExecuteReshardRequest request;
    request.set_request_id(request_id);
    v1::ReshardSpec& spec = *request.mutable_spec();
    spec.set_manifest("model");
    spec.mutable_source()->set_mesh("train");
    spec.mutable_source()->set_storage("s");
    AddRule(*spec.mutable_source(), "[shard, ...]");
    spec.mutable_destination()->set_mesh("serve");
    spec.mutable_destination()->set_storage("t");
    AddRule(*spec.mutable_destination(), "[...]");
    spec.add_replica_axes("replica");
    return request;
  }
  static void AddRule(v1::ReshardSide& side, const std::string& layout) {
    v1::LayoutRule& rule = *side.add_rules();
    rule.set_pattern("*");
    rule.set_layout(layout);
  }

  // Follows an execution to its end: the last operation, which has the report.
  absl::StatusOr<v1::Operation> Execute(
      const v1::ExecuteReshardRequest& request,
      const std::function<void(const v1::Operation&)>& on_change = [](const v1::Operation&) {}) {
    grpc::ClientContext context;
    SetDeadline(context);
    const auto reader = reshards_->ExecuteReshard(&context, request);
    v1::ExecuteReshardResponse response;
    v1::Operation last;
    while (reader->Read(&response)) {
      EXPECT_GT(response.operation().revision(), last.revision());
      last = response.operation();
      on_change(last);
    }
    const absl::Status status = FromGrpcStatus(reader->Finish());
    if (!status.ok()) return status;
    EXPECT_TRUE(last.has_report());
    return last;
  }

  absl::StatusOr<v1::Operation> Get(const std::string& id) {
    v1::GetOperationRequest request;
    request.set_id(id);
    v1::GetOperationResponse response;
    const absl::Status status = Unary([&](grpc::ClientContext* context) {
      return operations_->GetOperation(context, request, &response);
    });
    if (!status.ok()) return status;
    return response.operation();
  }
  absl::Status Cancel(const std::string& id, const std::string& reason) {
    v1::CancelOperationRequest request;
    request.set_id(id);
    request.set_reason(reason);
    v1::CancelOperationResponse response;
    return Unary([&](grpc::ClientContext* context) {
      return operations_->CancelOperation(context, request, &response);
    });
  }
  std::vector<v1::Worker> ListWorkers() {
    v1::ListWorkersResponse response;
    EXPECT_OK(Unary([&](grpc::ClientContext* context) {
      return workers_stub_->ListWorkers(context, v1::ListWorkersRequest(), &response);
    }));
    return {response.workers().begin(), response.workers().end()};
  }
  // Asks again and again, for 30 s at most.
  static void WaitUntil(const std::function<bool()>& condition) {
    const RealClock clock;
    const absl::Duration end = clock.Monotonic() + absl::Seconds(30);
    while (!condition()) {
      ASSERT_LT(clock.Monotonic(), end) << "waited in vain";
    }
  }

  const TemporaryFolder folder_;
  std::string address_;
  std::unique_ptr<Controller> controller_;
  std::unique_ptr<v1::MeshService::Stub> meshes_;
  std::unique_ptr<v1::ManifestService::Stub> manifests_;
  std::unique_ptr<v1::ReshardService::Stub> reshards_;
  std::unique_ptr<v1::OperationService::Stub> operations_;
  std::unique_ptr<v1::WorkerService::Stub> workers_stub_;
  std::vector<std::unique_ptr<FakeWorker>> workers_;
};

TEST_F(ControllerTest, MeshesAreRegisteredReadListedAndDeleted) {
  ASSERT_OK_AND_ASSIGN(const int64_t revision, CreateMesh("m1", "x=2", "a.0-1"));
  EXPECT_THAT(CreateMesh("m1", "x=2", "a.0-1"), IsOkAndHolds(revision));
  EXPECT_THAT(CreateMesh("m1", "x=2", "a.2-3"),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("mesh m1")));
  EXPECT_THAT(CreateMesh("M 1", "x=2", "a.0-1"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(CreateMesh("m2", "x=2", "a.0,a.0"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a.0")));
  for (const char* name : {"m2", "m3"}) ASSERT_OK(CreateMesh(name, "x=1", "a.0").status());

  v1::ListMeshesRequest list;
  list.set_page_size(2);
  std::vector<std::string> names;
  do {
    v1::ListMeshesResponse page;
    ASSERT_OK(Unary(
        [&](grpc::ClientContext* context) { return meshes_->ListMeshes(context, list, &page); }));
    for (const v1::Mesh& mesh : page.meshes()) names.push_back(mesh.name());
    list.set_page_token(page.next_page_token());
  } while (!list.page_token().empty());
  EXPECT_THAT(names, ElementsAre("m1", "m2", "m3"));

  v1::DeleteMeshRequest erase;
  erase.set_name("m2");
  v1::DeleteMeshResponse erased;
  const auto try_erase = [&](grpc::ClientContext* context) {
    return meshes_->DeleteMesh(context, erase, &erased);
  };
  EXPECT_OK(Unary(try_erase));
  EXPECT_THAT(Unary(try_erase), StatusIs(absl::StatusCode::kNotFound, HasSubstr("m2")));
}

TEST_F(ControllerTest, AManifestOfThousandsOfTensorsTravelsInPieces) {
  std::vector<std::string> tensors;
  for (int i = 0; i < 9500; ++i) tensors.push_back(absl::StrCat("layers.", i, ".weight"));
  ASSERT_OK_AND_ASSIGN(const v1::PutManifestResponse put, PutManifest("big", tensors));
  EXPECT_EQ(put.tensors(), 9500);
  EXPECT_EQ(put.size_bytes(), int64_t{9500} * 64 * 8 * 4);

  grpc::ClientContext context;
  SetDeadline(context);
  v1::GetManifestRequest get;
  get.set_name("big");
  const auto reader = manifests_->GetManifest(&context, get);
  v1::GetManifestResponse piece;
  std::vector<std::string> read;
  while (reader->Read(&piece)) {
    for (const v1::TensorSpec& tensor : piece.tensors()) read.push_back(tensor.name());
  }
  EXPECT_OK(FromGrpcStatus(reader->Finish()));
  EXPECT_EQ(read, tensors);

  tensors.push_back(tensors.front());
  EXPECT_THAT(PutManifest("twice", tensors),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("layers.0.weight")));
  tensors.back() = "other";
  EXPECT_THAT(PutManifest("big", tensors), StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(ControllerTest, APlanNeedsNoWorkerAndIsCached) {
  ASSERT_OK(CreateMesh("train", "shard=2", "a.0,b.0").status());
  ASSERT_OK(CreateMesh("serve", "replica=2", "c.0,d.0").status());
  ASSERT_OK(PutManifest("model", {"w"}).status());
  v1::PlanReshardRequest request;
  *request.mutable_spec() = Request("x").spec();
  request.set_explain(true);
  v1::PlanReshardResponse first;
  v1::PlanReshardResponse second;
  for (v1::PlanReshardResponse* response : {&first, &second}) {
    ASSERT_OK(Unary([&](grpc::ClientContext* context) {
      return reshards_->PlanReshard(context, request, response);
    }));
  }
  EXPECT_FALSE(first.summary().cached());
  EXPECT_TRUE(second.summary().cached());
  EXPECT_EQ(first.summary().id(), second.summary().id());
  EXPECT_EQ(first.summary().destination_bytes(), 2 * 64 * 8 * 4);
  EXPECT_EQ(first.summary().replicas(), 2);
  EXPECT_FALSE(first.text().empty());
}

TEST_F(ControllerTest, BadSpecificationsAreRefusedWithTheirField) {
  StartCluster();
  const auto with = [](const std::function<void(v1::ReshardSpec&)>& change) {
    v1::ExecuteReshardRequest request = Request("bad");
    change(*request.mutable_spec());
    return request;
  };
  using Spec = v1::ReshardSpec;
  EXPECT_THAT(Execute(with([](Spec& s) { s.mutable_source()->set_mesh("nowhere"); })),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("spec.source.mesh"), HasSubstr("nowhere"))));
  EXPECT_THAT(Execute(with([](Spec& s) { s.set_manifest("nothing"); })),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("spec.manifest")));
  EXPECT_THAT(Execute(with([](Spec& s) { s.set_strategy("magic"); })),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("spec.strategy")));
  EXPECT_THAT(Execute(with([](Spec& s) { s.mutable_destination()->clear_rules(); })),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("spec.destination.rules")));
  EXPECT_THAT(Execute(with([](Spec& s) { s.mutable_source()->clear_storage(); })),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("spec.source.storage")));
  EXPECT_THAT(Execute(with([](Spec& s) { s.mutable_deadline()->set_seconds(1 << 20); })),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("spec.deadline")));
  v1::ExecuteReshardRequest no_id = Request("");
  EXPECT_THAT(Execute(no_id),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("request_id")));
}

TEST_F(ControllerTest, ALayoutThatDoesNotFitFailsTheOperation) {
  StartCluster();
  v1::ExecuteReshardRequest request = Request("bad-layout");
  request.mutable_spec()->mutable_source()->mutable_rules(0)->set_layout("[shard, shard]");
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation, Execute(request));
  EXPECT_EQ(operation.state(), v1::OPERATION_STATE_FAILED);
  EXPECT_EQ(operation.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(operation.error(), HasSubstr("shard"));
}

TEST_F(ControllerTest, AnExecutionCommitsAndReports) {
  StartCluster();
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation, Execute(Request("r1")));
  EXPECT_EQ(operation.state(), v1::OPERATION_STATE_COMMITTED) << operation.DebugString();
  EXPECT_EQ(operation.request_id(), "r1");
  EXPECT_EQ(operation.reshard().source().mesh(), "train");
  EXPECT_THAT(operation.replicas(), SizeIs(2));
  EXPECT_EQ(operation.replicas(1).devices(), "d.0");
  EXPECT_EQ(operation.report().destination_bytes(), 2 * 64 * 8 * 4);
  EXPECT_FALSE(operation.report().plan_cached());
  EXPECT_GT(operation.report().bound_seconds(), 0);
  EXPECT_EQ(Get(operation.id())->SerializeAsString(), operation.SerializeAsString());
}

TEST_F(ControllerTest, ASteadyStateExecutionIsOneCallToEachWorkerAndSendsNoPart) {
  StartCluster();
  for (const char* id : {"r1", "r2", "r3"}) {
    ASSERT_OK_AND_ASSIGN(const v1::Operation operation, Execute(Request(id)));
    EXPECT_EQ(operation.state(), v1::OPERATION_STATE_COMMITTED);
    EXPECT_EQ(operation.report().plan_cached(), std::string(id) != "r1");
  }
  for (const auto& worker : workers_) {
    EXPECT_EQ(worker->counts().calls, 3);
    EXPECT_EQ(worker->counts().parts, 1);
  }
}

TEST_F(ControllerTest, ARequestIdNamesOneOperation) {
  StartCluster();
  ASSERT_OK_AND_ASSIGN(const v1::Operation first, Execute(Request("r1")));
  ASSERT_OK_AND_ASSIGN(const v1::Operation again, Execute(Request("r1")));
  EXPECT_EQ(again.SerializeAsString(), first.SerializeAsString());
  EXPECT_EQ(workers_[0]->counts().calls, 1);
  v1::ExecuteReshardRequest other = Request("r1");
  other.mutable_spec()->set_seed(5);
  EXPECT_THAT(Execute(other), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("r1")));
}

TEST_F(ControllerTest, ARunningOperationIsJoinedByItsRequestId) {
  StartCluster();
  workers_[2]->SetManner(FakeWorker::Manner::kHolding);
  std::string joined;
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation,
                       Execute(Request("r1"), [&](const v1::Operation& now) {
                         if (!joined.empty()) return;
                         workers_[2]->WaitUntilHolding(1);
                         // A second client asks for the same and reads the present state.
                         grpc::ClientContext context;
                         SetDeadline(context);
                         const auto reader = reshards_->ExecuteReshard(&context, Request("r1"));
                         v1::ExecuteReshardResponse response;
                         ASSERT_TRUE(reader->Read(&response));
                         joined = response.operation().id();
                         EXPECT_EQ(joined, now.id());
                         workers_[2]->Release();
                         while (reader->Read(&response)) {
                         }
                         EXPECT_OK(FromGrpcStatus(reader->Finish()));
                         EXPECT_EQ(response.operation().state(), v1::OPERATION_STATE_COMMITTED);
                       }));
  EXPECT_EQ(operation.state(), v1::OPERATION_STATE_COMMITTED);
}

TEST_F(ControllerTest, AWorkerThatLeftFailsTheOperationBeforeAnythingStarts) {
  StartCluster();
  workers_[3]->Leave();
  WaitUntil([this] { return ListWorkers().size() == 3; });
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation, Execute(Request("r1")));
  EXPECT_EQ(operation.state(), v1::OPERATION_STATE_FAILED);
  EXPECT_EQ(operation.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(operation.error(), HasSubstr("d.0"));
  EXPECT_EQ(workers_[0]->counts().calls, 0);
}

TEST_F(ControllerTest, ARefusalOfAWorkerNamesItAndItsReason) {
  StartCluster();
  workers_[3]->SetManner(FakeWorker::Manner::kRefusing);
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation, Execute(Request("r1")));
  EXPECT_EQ(operation.replicas(1).state(), v1::REPLICA_STATE_FAILED);
  EXPECT_THAT(operation.error(), AllOf(HasSubstr("w-d"), HasSubstr("storage t")));
}

TEST_F(ControllerTest, CancelEndsARunningOperation) {
  StartCluster();
  for (const auto& worker : workers_) worker->SetManner(FakeWorker::Manner::kHolding);
  bool cancelled = false;
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation,
                       Execute(Request("r1"), [&](const v1::Operation& now) {
                         if (now.state() != v1::OPERATION_STATE_RUNNING || cancelled) return;
                         cancelled = true;
                         EXPECT_OK(Cancel(now.id(), "not needed"));
                       }));
  EXPECT_EQ(operation.state(), v1::OPERATION_STATE_CANCELLED);
  EXPECT_THAT(operation.error(), HasSubstr("not needed"));
  EXPECT_EQ(workers_[2]->counts().cancels, 1);
  EXPECT_EQ(workers_[2]->counts().abandons, 1);
  EXPECT_OK(Cancel(operation.id(), "again"));
  EXPECT_THAT(Cancel("op-0", ""), StatusIs(absl::StatusCode::kNotFound, HasSubstr("op-0")));
}

TEST_F(ControllerTest, AWorkerLostInTheMiddleFailsItsReplicaAndTheNextOperationIsServed) {
  StartCluster();
  for (const auto& worker : workers_) worker->SetManner(FakeWorker::Manner::kHolding);
  bool lost = false;
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation,
                       Execute(Request("r1"), [&](const v1::Operation& now) {
                         if (now.state() != v1::OPERATION_STATE_RUNNING || lost) return;
                         lost = true;
                         workers_[3]->Vanish();
                         for (int i = 0; i < 3; ++i) workers_[i]->Release();
                       }));
  EXPECT_EQ(operation.state(), v1::OPERATION_STATE_PARTIAL) << operation.DebugString();
  EXPECT_EQ(operation.replicas(0).state(), v1::REPLICA_STATE_COMMITTED);
  EXPECT_THAT(operation.replicas(1).error(), HasSubstr("w-d"));

  workers_.pop_back();
  AddWorker("d");
  ASSERT_OK_AND_ASSIGN(const v1::Operation next, Execute(Request("r2")));
  EXPECT_EQ(next.state(), v1::OPERATION_STATE_COMMITTED) << next.DebugString();
}

TEST_F(ControllerTest, HeartbeatsTellProgress) {
  StartCluster();
  workers_[2]->SetManner(FakeWorker::Manner::kHolding);
  bool sent = false;
  int64_t moved = 0;
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation,
                       Execute(Request("r1"), [&](const v1::Operation& now) {
                         if (!sent) {
                           workers_[2]->WaitUntilHolding(1);
                           workers_[2]->SendHeartbeat(now.id(), 1000);
                           sent = true;
                         } else if (now.moved_bytes() == 1000) {
                           moved = now.moved_bytes();
                           workers_[2]->Release();
                         }
                       }));
  EXPECT_EQ(moved, 1000);
  EXPECT_EQ(operation.moved_bytes(), operation.total_bytes());
}

TEST_F(ControllerTest, AWatchOfAnUnknownOperationIsNotFoundAndOfAFinishedOneHasItsReport) {
  StartCluster();
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation, Execute(Request("r1")));
  for (const std::string& id : {operation.id(), std::string("op-none")}) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::WatchOperationRequest request;
    request.set_id(id);
    const auto reader = operations_->WatchOperation(&context, request);
    v1::WatchOperationResponse response;
    int messages = 0;
    while (reader->Read(&response)) ++messages;
    const absl::Status status = FromGrpcStatus(reader->Finish());
    if (id == operation.id()) {
      EXPECT_OK(status);
      EXPECT_EQ(messages, 1);
      EXPECT_EQ(response.operation().SerializeAsString(), operation.SerializeAsString());
    } else {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, HasSubstr("op-none")));
    }
  }
}

TEST_F(ControllerTest, ASecondSessionOfAWorkerSupersedesTheFirst) {
  FakeWorker& first = AddWorker("a");
  const std::string elsewhere = folder_.PathOf("elsewhere");
  std::filesystem::create_directory(elsewhere);
  const FakeWorker second(
      {.folder = elsewhere, .name = "w-a", .devices = "a.0", .controller = address_});
  EXPECT_THAT(first.ReadSession(), StatusIs(absl::StatusCode::kAborted, HasSubstr("superseded")));
  EXPECT_THAT(ListWorkers(), SizeIs(1));
}

TEST_F(ControllerTest, ADrainedWorkerIsToldAndGetsNoWork) {
  StartCluster();
  v1::DrainWorkerRequest request;
  request.set_name("w-d");
  v1::DrainWorkerResponse response;
  const auto drain = [&](grpc::ClientContext* context) {
    return workers_stub_->DrainWorker(context, request, &response);
  };
  ASSERT_OK(Unary(drain));
  ASSERT_OK_AND_ASSIGN(const v1::WorkerSessionResponse told, workers_[3]->ReadSession());
  EXPECT_TRUE(told.has_drain());
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation, Execute(Request("r1")));
  EXPECT_EQ(operation.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(operation.error(), HasSubstr("draining"));
  request.set_name("nobody");
  EXPECT_THAT(Unary(drain), StatusIs(absl::StatusCode::kNotFound, HasSubstr("nobody")));
}

TEST_F(ControllerTest, ThousandsOfOperationsLeaveAThousand) {
  StartCluster();
  constexpr int kOperations = 2000;
  std::string first;
  for (int i = 0; i < kOperations; ++i) {
    ASSERT_OK_AND_ASSIGN(const v1::Operation operation, Execute(Request(absl::StrCat("r", i))));
    ASSERT_EQ(operation.state(), v1::OPERATION_STATE_COMMITTED);
    if (i == 0) first = operation.id();
  }
  int64_t listed = 0;
  std::string before;
  v1::ListOperationsRequest request;
  request.set_page_size(300);
  do {
    v1::ListOperationsResponse page;
    ASSERT_OK(Unary([&](grpc::ClientContext* context) {
      return operations_->ListOperations(context, request, &page);
    }));
    for (const v1::Operation& operation : page.operations()) {
      EXPECT_TRUE(before.empty() || operation.id() < before) << operation.id();
      before = operation.id();
      ++listed;
    }
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(listed, 1000);
  EXPECT_THAT(Get(first), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(workers_[0]->counts().parts, 1);
}

TEST_F(ControllerTest, AShutdownWaitsForWhatRunsAndRefusesWhatIsNew) {
  StartCluster();
  workers_[2]->SetManner(FakeWorker::Manner::kHolding);
  Thread shutdown;
  ASSERT_OK_AND_ASSIGN(
      const v1::Operation operation, Execute(Request("r1"), [&](const v1::Operation& now) {
        // One replica may be whole, and so VERIFYING, before the other's worker has accepted.
        if (now.state() == v1::OPERATION_STATE_PREPARING || shutdown.joinable()) return;
        shutdown = Thread("shutdown", [this] { controller_->Shutdown(absl::Seconds(30)); });
        v1::ExecuteReshardRequest unknown = Request("r2");
        unknown.mutable_spec()->set_manifest("nothing");
        WaitUntil([&] { return absl::IsUnavailable(Execute(unknown).status()); });
        workers_[2]->Release();
      }));
  EXPECT_EQ(operation.state(), v1::OPERATION_STATE_COMMITTED);
  shutdown.Join();
}

TEST_F(ControllerTest, AnAddressInUseIsAFailedPrecondition) {
  EXPECT_THAT(Controller::Create({.listen = {address_}, .metrics_listen = ""}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("controller.sock")));
  EXPECT_THAT(Controller::Create({.listen = {"0.0.0.0:0"}, .metrics_listen = ""}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(ControllerTest, MetricsAreServedWhenAskedFor) {
  EXPECT_EQ(controller_->metrics_address(), "");
  controller_.reset();
  ASSERT_OK_AND_ASSIGN(controller_, Controller::Create({.listen = {address_}}));
  EXPECT_THAT(controller_->metrics_address(), HasSubstr("127.0.0.1:"));
}

TEST_F(ControllerTest, TheEpochGrowsFromStartToStart) {
  const uint64_t before = controller_->epoch();
  controller_.reset();
  StartController();
  EXPECT_GT(controller_->epoch(), before);
}

}  // namespace
}  // namespace crossmesh
