#include "controller/controller.h"

#include "common/base/version.h"
#include "common/rpc/deadline.h"
#include "common/rpc/error_details.h"
#include "common/rpc/push_back.h"
#include "common/rpc/status_codec.h"
#include "common/testing/status_matchers.h"
#include "common/wire/session_protocol.h"
#include "controller/testing/controller_fixture.h"
#include "crossmesh/v1/controller_service.grpc.pb.h"
#include "crossmesh/v1/pipeline_service.grpc.pb.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Pipelines = v1::PipelineService::Stub;

class ControllerTest : public ControllerFixture {
 protected:
  void SetUp() override { StartController(); }
};

TEST_F(ControllerTest, MeshesAreRegisteredReadListedAndDeleted) {
  using Meshes = v1::MeshService::Stub;
  ASSERT_OK_AND_ASSIGN(const int64_t revision, CreateMesh("m1", "x=2", "a.0-1"));
  EXPECT_THAT(CreateMesh("m1", "x=2", "a.0-1"), IsOkAndHolds(revision));
  EXPECT_THAT(CreateMesh("m1", "x=2", "a.2-3"),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("mesh m1")));
  EXPECT_THAT(CreateMesh("M 1", "x=2", "a.0-1"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(CreateMesh("m2", "x=2", "a.0,a.0"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a.0")));
  for (const char* name : {"m2", "m3"}) ASSERT_OK(CreateMesh(name, "x=1", "a.0"));

  v1::ListMeshesRequest list;
  list.set_page_size(2);
  std::vector<std::string> names;
  do {
    ASSERT_OK_AND_ASSIGN(const auto page, Call(*meshes_, &Meshes::ListMeshes, list));
    for (const v1::Mesh& mesh : page.meshes()) names.push_back(mesh.name());
    list.set_page_token(page.next_page_token());
  } while (!list.page_token().empty());
  EXPECT_THAT(names, ElementsAre("m1", "m2", "m3"));

  v1::DeleteMeshRequest erase;
  erase.set_name("m2");
  EXPECT_OK(Call(*meshes_, &Meshes::DeleteMesh, erase));
  EXPECT_THAT(Call(*meshes_, &Meshes::DeleteMesh, erase),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("m2")));
}

TEST_F(ControllerTest, APageTokenThatIsNoneIsRefused) {
  const auto list = [](auto& stub, auto method, auto request) {
    request.set_page_token("no such, or \n");
    return Call(stub, method, request).status();
  };
  const auto pipelines = v1::PipelineService::NewStub(channel_);
  const std::vector<absl::Status> answers = {
      list(*meshes_, &v1::MeshService::Stub::ListMeshes, v1::ListMeshesRequest()),
      list(*manifests_, &v1::ManifestService::Stub::ListManifests, v1::ListManifestsRequest()),
      list(*operations_, &v1::OperationService::Stub::ListOperations, v1::ListOperationsRequest()),
      list(*pipelines, &Pipelines::ListPipelines, v1::ListPipelinesRequest()),
      list(*pipelines, &Pipelines::ListPipelineRuns, v1::ListPipelineRunsRequest()),
      list(*sessions_, &v1::WorkerService::Stub::ListWorkers, v1::ListWorkersRequest())};
  for (const absl::Status& answer : answers) {
    EXPECT_THAT(answer, StatusIs(absl::StatusCode::kInvalidArgument,
                                 HasSubstr("page_token: expected that of the page before")));
  }
  // The form of an id, of another kind of job.
  v1::ListOperationsRequest request;
  request.set_page_token("pr-0000000000000000");
  EXPECT_THAT(Call(*operations_, &v1::OperationService::Stub::ListOperations, request),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(ControllerTest, ErrorsHaveDetails) {
  v1::GetMeshRequest request;
  request.set_name("none");
  const absl::Status unknown = Call(*meshes_, &v1::MeshService::Stub::GetMesh, request).status();
  EXPECT_FALSE(unknown.GetPayload("type.googleapis.com/google.rpc.ErrorInfo")->empty());
  EXPECT_EQ(DetailsOf(unknown), (ErrorDetails{"mesh \"none\"", "a registered one", "none"}));
  v1::ListMeshesRequest list;
  list.set_page_size(-1);
  EXPECT_EQ(DetailsOf(Call(*meshes_, &v1::MeshService::Stub::ListMeshes, list).status()),
            (ErrorDetails{"page_size", "0 to 1000", "-1"}));
}

TEST_F(ControllerTest, AManifestOfThousandsOfTensorsTravelsInPieces) {
  std::vector<std::string> tensors;
  for (int i = 0; i < 9500; ++i) tensors.push_back(absl::StrCat("layers.", i, ".weight"));
  ASSERT_OK_AND_ASSIGN(const v1::PutManifestResponse put, PutManifest("big", tensors));
  EXPECT_EQ(put.tensors(), 9500);
  EXPECT_EQ(put.size_bytes(), int64_t{9500} * 64 * 8 * 4);

  v1::GetManifestRequest get;
  get.set_name("big");
  StreamReader<v1::GetManifestResponse> reader(
      [&](auto* context) { return manifests_->GetManifest(context, get); });
  std::vector<std::string> read;
  absl::StatusOr<v1::GetManifestResponse> piece = reader.Next();
  for (; piece.ok(); piece = reader.Next()) {
    for (const v1::TensorSpec& tensor : piece->tensors()) read.push_back(tensor.name());
  }
  EXPECT_TRUE(reader.ended()) << piece.status();
  EXPECT_EQ(read, tensors);

  tensors.push_back(tensors.front());
  EXPECT_THAT(PutManifest("twice", tensors),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("layers.0.weight")));
  tensors.back() = "other";
  EXPECT_THAT(PutManifest("big", tensors), StatusIs(absl::StatusCode::kAlreadyExists));
}

// Before what follows is read.
TEST_F(ControllerTest, AManifestOfTooManyTensorsIsRefusedAtItsFirstMessage) {
  const auto put = [this](int64_t count, int tensors) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::PutManifestResponse response;
    const auto writer = manifests_->PutManifest(&context, &response);
    v1::PutManifestRequest request;
    request.set_name("m");
    request.set_tensor_count(count);
    for (int i = 0; i < tensors; ++i) {
      request.add_tensors()->set_name(absl::StrCat("t", i));
      request.mutable_tensors(i)->set_dtype("F32");
    }
    writer->Write(request);
    return FromGrpcStatus(writer->Finish());
  };
  EXPECT_THAT(put(1'000'001, 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("expected at most 1000000 tensors, found 1000001")));
  EXPECT_THAT(put(1, 2), StatusIs(absl::StatusCode::kInvalidArgument,
                                  HasSubstr("expected 1 tensors, as the first message says")));
}

// A session that a test speaks in.
class RawSession {
 public:
  explicit RawSession(v1::WorkerService::Stub& stub) {
    SetDeadline(context_);
    call_ = stub.WorkerSession(&context_);
  }
  ~RawSession() { context_.TryCancel(); }
  // What the controller answers, or how it ends the session.
  absl::StatusOr<v1::WorkerSessionResponse> Say(const v1::WorkerSessionRequest& request) {
    call_->Write(request);
    return Hear();
  }
  absl::StatusOr<v1::WorkerSessionResponse> Hear() {
    v1::WorkerSessionResponse response;
    if (call_->Read(&response)) return response;
    const absl::Status status = FromGrpcStatus(call_->Finish());
    return status.ok() ? absl::UnknownError("the session has ended") : status;
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerSessionRequest, v1::WorkerSessionResponse>>
      call_;
};

v1::WorkerSessionRequest RegistrationOf(const std::string& address, uint64_t incarnation) {
  v1::WorkerSessionRequest request;
  v1::WorkerSessionRequest::Register& registration = *request.mutable_register_();
  registration.set_worker("w-a");
  registration.set_incarnation(incarnation);
  registration.set_devices("a.0");
  registration.set_execution_address(address);
  registration.set_transport("inprocess");
  registration.set_protocol(kSessionProtocols.newest);
  return request;
}

TEST_F(ControllerTest, ASecondSessionOfAProcessSupersedesTheFirst) {
  FakeWorker& first = AddWorker("a");
  RawSession second(*sessions_);
  ASSERT_OK_AND_ASSIGN(
      const v1::WorkerSessionResponse answer,
      second.Say(RegistrationOf("unix:" + folder_.PathOf("w-a.sock"), /*incarnation=*/1)));
  EXPECT_TRUE(answer.has_registered());
  EXPECT_THAT(first.ReadSession(), StatusIs(absl::StatusCode::kAborted, HasSubstr("superseded")));
  EXPECT_THAT(ListWorkers(), SizeIs(1));
}

TEST_F(ControllerTest, ASecondProcessOfANameIsRefusedUntilTheFirstIsGone) {
  RawSession first(*sessions_);
  ASSERT_OK(first.Say(RegistrationOf("unix:/first.sock", UINT64_MAX)));
  EXPECT_THAT(RawSession(*sessions_).Say(RegistrationOf("unix:/second.sock", 7)),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("w-a")));
  v1::WorkerSessionRequest leave;
  leave.mutable_leave();
  EXPECT_FALSE(first.Say(leave).ok());
  // Once the controller has seen the end.
  WaitUntil(
      [this] { return RawSession(*sessions_).Say(RegistrationOf("unix:/second.sock", 7)).ok(); });
}

TEST_F(ControllerTest, AWorkerOfANeighbouringReleaseJoinsInTheProtocolOfBoth) {
  v1::WorkerSessionRequest older = RegistrationOf("unix:/first.sock", 7);  // knows no range
  older.mutable_register_()->set_protocol(kSessionProtocols.oldest);
  ASSERT_OK_AND_ASSIGN(const v1::WorkerSessionResponse answer, RawSession(*sessions_).Say(older));
  EXPECT_EQ(answer.registered().protocol(), kSessionProtocols.oldest);
  v1::WorkerSessionRequest newer = RegistrationOf("unix:/first.sock", 7);
  newer.mutable_register_()->set_protocol(kSessionProtocols.newest + 1);
  newer.mutable_register_()->set_oldest_protocol(kSessionProtocols.newest);
  ASSERT_OK_AND_ASSIGN(const v1::WorkerSessionResponse next, RawSession(*sessions_).Say(newer));
  EXPECT_EQ(next.registered().protocol(), kSessionProtocols.newest);
}

TEST_F(ControllerTest, AWorkerOfADistantReleaseIsRefusedWithBothVersions) {
  for (const bool newer : {false, true}) {
    v1::WorkerSessionRequest distant = RegistrationOf("unix:/first.sock", 7);
    v1::WorkerSessionRequest::Register& registration = *distant.mutable_register_();
    registration.set_version(newer ? "0.9.0" : "0.0.1");
    registration.set_protocol(newer ? kSessionProtocols.newest + 2 : kSessionProtocols.oldest - 1);
    if (newer) registration.set_oldest_protocol(kSessionProtocols.newest + 1);
    EXPECT_THAT(RawSession(*sessions_).Say(distant),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr(absl::StrCat("version ", Version())),
                               HasSubstr(registration.version()))));
  }
  EXPECT_THAT(ListWorkers(), SizeIs(0));
}

TEST_F(ControllerTest, AWorkerHearsWhatHasEndedOfWhatItHolds) {
  RawSession session(*sessions_);
  ASSERT_OK(session.Say(RegistrationOf("unix:/first.sock", 7)));
  v1::WorkerSessionRequest beat;
  beat.mutable_heartbeat()->add_held_operations("op-1");
  ASSERT_OK_AND_ASSIGN(const v1::WorkerSessionResponse answer, session.Say(beat));
  EXPECT_THAT(answer.operations_ended().operations(), ElementsAre("op-1"));
}

TEST_F(ControllerTest, AWorkerThatDrainsIsToldAgainOnItsNextStreamAndListedSo) {
  RawSession first(*sessions_);
  ASSERT_OK(first.Say(RegistrationOf("unix:/first.sock", 7)));
  v1::DrainWorkerRequest drain;
  drain.set_name("w-a");
  ASSERT_OK(Call(*sessions_, &v1::WorkerService::Stub::DrainWorker, drain));
  RawSession second(*sessions_);
  ASSERT_OK(second.Say(RegistrationOf("unix:/first.sock", 7)));
  ASSERT_OK_AND_ASSIGN(const v1::WorkerSessionResponse told, second.Hear());
  EXPECT_TRUE(told.has_drain());
  EXPECT_EQ(ListWorkers().front().state(), v1::WORKER_STATE_DRAINING);
}

TEST_F(ControllerTest, AWorkerHearsThatItDrainsNoMoreAndIsListedSoOnceItSaysSo) {
  RawSession session(*sessions_);
  ASSERT_OK(session.Say(RegistrationOf("unix:/first.sock", 7)));
  v1::WorkerSessionRequest beat;
  beat.mutable_heartbeat()->add_held_operations("op-1");  // for an answer
  beat.mutable_heartbeat()->set_draining(true);
  beat.mutable_heartbeat()->add_dirty_storages("s on a.0");
  ASSERT_OK(session.Say(beat));
  v1::UndrainWorkerRequest undrain;
  undrain.set_name("w-a");
  ASSERT_OK(Call(*sessions_, &v1::WorkerService::Stub::UndrainWorker, undrain));
  ASSERT_OK_AND_ASSIGN(const v1::WorkerSessionResponse told, session.Hear());
  EXPECT_TRUE(told.has_undrain());
  EXPECT_EQ(ListWorkers().front().state(), v1::WORKER_STATE_DRAINING);
  EXPECT_THAT(ListWorkers().front().dirty_storages(), ElementsAre("s on a.0"));
  beat.mutable_heartbeat()->set_draining(false);
  beat.mutable_heartbeat()->clear_dirty_storages();
  ASSERT_OK(session.Say(beat));
  EXPECT_EQ(ListWorkers().front().state(), v1::WORKER_STATE_READY);
  EXPECT_THAT(ListWorkers().front().dirty_storages(), SizeIs(0));
  beat.mutable_heartbeat()->set_leaving(true);
  ASSERT_OK(session.Say(beat));
  EXPECT_THAT(Call(*sessions_, &v1::WorkerService::Stub::UndrainWorker, undrain),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("w-a")));
  undrain.set_name("w-none");
  EXPECT_THAT(Call(*sessions_, &v1::WorkerService::Stub::UndrainWorker, undrain),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("w-none")));
}

// It would hear nothing of it, and stay as it is.
TEST_F(ControllerTest, ADrainOfAnOlderWorkerIsNotTakenBack) {
  v1::WorkerSessionRequest older = RegistrationOf("unix:/first.sock", 7);
  older.mutable_register_()->set_protocol(kSessionProtocols.oldest);
  older.mutable_register_()->set_version("7.8.9");
  RawSession session(*sessions_);
  ASSERT_OK(session.Say(older));
  v1::UndrainWorkerRequest undrain;
  undrain.set_name("w-a");
  EXPECT_THAT(Call(*sessions_, &v1::WorkerService::Stub::UndrainWorker, undrain),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("worker w-a"), HasSubstr("7.8.9"),
                             HasSubstr(absl::StrCat("version ", Version())))));
}

TEST_F(ControllerTest, WhenTooManyRegisterAtOnceTheRestAreToldWhenToComeAgain) {
  controller_.reset();
  ASSERT_OK_AND_ASSIGN(controller_, Controller::Create({.listen = {address_},
                                                        .metrics_listen = "",
                                                        .registrations_at_once = 1,
                                                        .registrations_per_second = 0.5}));
  RawSession first(*sessions_);
  ASSERT_OK(first.Say(RegistrationOf("unix:/first.sock", 7)));
  v1::WorkerSessionRequest other = RegistrationOf("unix:/second.sock", 8);
  other.mutable_register_()->set_worker("w-b");
  other.mutable_register_()->set_devices("b.0");
  const auto refused = RawSession(*sessions_).Say(other);
  ASSERT_THAT(refused, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("w-b")));
  EXPECT_THAT(PushBackOf(refused.status()), testing::Optional(testing::Gt(absl::ZeroDuration())));
  // One that is there is not held up, since it would be lost.
  EXPECT_OK(RawSession(*sessions_).Say(RegistrationOf("unix:/first.sock", 7)));
  EXPECT_THAT(ListWorkers(), SizeIs(1));
}

TEST_F(ControllerTest, OneThatStandsByIsListedUnderAnAddress) {
  const auto stub = v1::ControllerService::NewStub(channel_);
  v1::ReportStandbyRequest report;
  report.mutable_standby()->set_address("nowhere");
  EXPECT_THAT(Call(*stub, &v1::ControllerService::Stub::ReportStandby, report),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("standby.address")));
  report.mutable_standby()->set_address("192.0.2.2:7400");
  report.mutable_standby()->set_version("0.2.0");
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(Call(*stub, &v1::ControllerService::Stub::ReportStandby, report));
  }
  ASSERT_OK_AND_ASSIGN(const auto shown, Call(*stub, &v1::ControllerService::Stub::GetController,
                                              v1::GetControllerRequest()));
  ASSERT_EQ(shown.controller().standbys_size(), 1);
  EXPECT_EQ(shown.controller().standbys(0).version(), "0.2.0");
}

TEST_F(ControllerTest, AnEvictedWorkersSessionEndsAndItsProcessIsRefused) {
  RawSession evicted(*sessions_);
  ASSERT_OK(evicted.Say(RegistrationOf("unix:/first.sock", 7)));
  v1::EvictWorkerRequest evict;
  evict.set_name("w-a");
  ASSERT_OK(Call(*sessions_, &v1::WorkerService::Stub::EvictWorker, evict));
  EXPECT_THAT(evicted.Hear(), StatusIs(absl::StatusCode::kAborted, HasSubstr("evicted")));
  EXPECT_THAT(RawSession(*sessions_).Say(RegistrationOf("unix:/first.sock", 7)),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("w-a")));
  EXPECT_THAT(Call(*sessions_, &v1::WorkerService::Stub::EvictWorker, evict),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("w-a")));
  EXPECT_OK(RawSession(*sessions_).Say(RegistrationOf("unix:/second.sock", 8)));
}

TEST_F(ControllerTest, ALostStrangerCanBeForgotten) {
  {
    RawSession stranger(*sessions_);
    ASSERT_OK(stranger.Say(RegistrationOf("unix:/first.sock", 7)));
    v1::ForgetWorkerRequest forget;
    forget.set_name("w-a");
    EXPECT_THAT(Call(*sessions_, &v1::WorkerService::Stub::ForgetWorker, forget),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("w-a")));
  }
  v1::ForgetWorkerRequest forget;
  forget.set_name("w-a");
  WaitUntil([&] { return Call(*sessions_, &v1::WorkerService::Stub::ForgetWorker, forget).ok(); });
  EXPECT_THAT(ListWorkers(), SizeIs(0));
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
