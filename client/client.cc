#include "client/client.h"

#include "client/client_calls.h"
#include "client/follower.h"
#include "client/pause.h"
#include "common/base/backoff.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/server.h"
#include "common/rpc/status_codec.h"
#include "common/wire/tensor_codec.h"

#include <algorithm>
#include <random>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <google/protobuf/message.h>
#include <grpcpp/client_context.h>

namespace crossmesh {
namespace {

constexpr size_t kTensorsPerMessage = 4096;

// From the system's source, so that clients that start together differ.
uint64_t RandomNumber() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

// What is larger is refused on its way, by a message that does not help.
absl::Status CheckBytes(const google::protobuf::Message& request) {
  constexpr size_t kBytesMax = RpcServer::kBulkMessageBytesMax;
  const size_t bytes = request.ByteSizeLong();
  if (bytes <= kBytesMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("request: expected at most ", kBytesMax, " bytes, found ", bytes,
                   "; register the manifest (`crossmesh manifest create`) and give its name"));
}

}  // namespace

absl::StatusOr<Client> Client::Connect(const std::string& address, const ClientOptions& options) {
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel,
                   BuildRpcChannel({.address = address, .insecure = options.insecure}));
  ClientOptions bounded = options;
  bounded.call_timeout = std::min(options.call_timeout, options.timeout);
  bounded.retry_for = std::min(options.retry_for, options.timeout);
  return Client(address, bounded, channel);
}

Client::Client(std::string address, const ClientOptions& options,
               const std::shared_ptr<grpc::Channel>& channel)
    : address_(std::move(address)),
      options_(options),
      stubs_(std::make_unique<Stubs>(Stubs{
          .controllers = v1::ControllerService::NewStub(channel),
          .meshes = v1::MeshService::NewStub(channel),
          .manifests = v1::ManifestService::NewStub(channel),
          .networks = v1::NetworkService::NewStub(channel),
          .reshards = v1::ReshardService::NewStub(channel),
          .operations = v1::OperationService::NewStub(channel),
          .pipelines = v1::PipelineService::NewStub(channel),
          .workers = v1::WorkerService::NewStub(channel),
      })) {}

Client::Client(Client&& other) noexcept = default;
Client& Client::operator=(Client&& other) noexcept = default;
Client::~Client() = default;

absl::Status Client::Explain(const absl::Status& status) const {
  switch (status.code()) {
    // This client cancels no calls: a server has stopped, or a connection has ended.
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnavailable:
      return absl::UnavailableError(absl::StrCat("controller ", address_, ": ", status.message()));
    case absl::StatusCode::kDeadlineExceeded:
      return absl::DeadlineExceededError(absl::StrCat("controller ", address_,
                                                      ": no answer within ",
                                                      absl::FormatDuration(options_.call_timeout)));
    default:
      return status;
  }
}

absl::Status Client::Retry(absl::FunctionRef<absl::Status()> attempt) const {
  const RealClock clock;
  const absl::Duration until = clock.Monotonic() + options_.retry_for;
  Backoff backoff({}, RandomNumber());
  while (true) {
    const absl::Status status = Explain(attempt());
    const absl::Duration pause = backoff.Next();
    if (!absl::IsUnavailable(status) || clock.Monotonic() + pause >= until) return status;
    Pause(pause);
  }
}

absl::StatusOr<int64_t> Client::CreateMesh(const v1::Mesh& mesh) {
  v1::CreateMeshRequest request;
  *request.mutable_mesh() = mesh;
  request.set_request_id(NewRequestId());
  ASSIGN_OR_RETURN(auto response,
                   Call(*stubs_->meshes, &v1::MeshService::Stub::CreateMesh, request));
  return response.revision();
}

absl::StatusOr<v1::GetMeshResponse> Client::GetMesh(const std::string& name) {
  return Call(*stubs_->meshes, &v1::MeshService::Stub::GetMesh, Named<v1::GetMeshRequest>(name));
}

absl::StatusOr<std::vector<v1::Mesh>> Client::ListMeshes() {
  return Pages<v1::Mesh>(*stubs_->meshes, &v1::MeshService::Stub::ListMeshes,
                         &v1::ListMeshesResponse::meshes);
}

absl::Status Client::DeleteMesh(const std::string& name, int64_t revision) {
  auto request = Named<v1::DeleteMeshRequest>(name);
  request.set_revision(revision);
  // Once: a second answer would be that there is none.
  return Explain(CallOnce(*stubs_->meshes, &v1::MeshService::Stub::DeleteMesh, request).status());
}

absl::StatusOr<v1::PutManifestResponse> Client::PutManifest(const std::string& name,
                                                            const Manifest& manifest) {
  v1::PutManifestResponse response;
  const auto attempt = [&] {
    grpc::ClientContext context;
    SetDeadline(context, options_.call_timeout);
    const auto writer = stubs_->manifests->PutManifest(&context, &response);
    v1::PutManifestRequest message;
    message.set_name(name);
    message.set_tensor_count(static_cast<int64_t>(manifest.tensors().size()));
    for (const TensorSpec& tensor : manifest.tensors()) {
      *message.add_tensors() = ToProto(tensor);
      if (message.tensors().size() < static_cast<int>(kTensorsPerMessage)) continue;
      if (!writer->Write(message)) break;  // the status says why
      message.Clear();
    }
    // The name is in the first message only; a manifest without tensors still needs that one.
    if (!message.name().empty() || !message.tensors().empty()) writer->Write(message);
    writer->WritesDone();
    return FromGrpcStatus(writer->Finish());
  };
  RETURN_IF_ERROR(Retry(attempt));
  return response;
}

absl::StatusOr<Manifest> Client::GetManifest(const std::string& name) {
  v1::Manifest manifest;
  const auto attempt = [&] {
    manifest.Clear();
    grpc::ClientContext context;
    SetDeadline(context, options_.call_timeout);
    const auto reader =
        stubs_->manifests->GetManifest(&context, Named<v1::GetManifestRequest>(name));
    v1::GetManifestResponse message;
    while (reader->Read(&message)) manifest.mutable_tensors()->MergeFrom(message.tensors());
    return FromGrpcStatus(reader->Finish());
  };
  RETURN_IF_ERROR(Retry(attempt));
  return FromProto(manifest);
}

absl::StatusOr<std::vector<v1::ListManifestsResponse::Entry>> Client::ListManifests() {
  return Pages<v1::ListManifestsResponse::Entry>(*stubs_->manifests,
                                                 &v1::ManifestService::Stub::ListManifests,
                                                 &v1::ListManifestsResponse::manifests);
}

absl::Status Client::DeleteManifest(const std::string& name, int64_t revision) {
  auto request = Named<v1::DeleteManifestRequest>(name);
  request.set_revision(revision);
  return Explain(
      CallOnce(*stubs_->manifests, &v1::ManifestService::Stub::DeleteManifest, request).status());
}

absl::StatusOr<v1::Network> Client::GetNetwork() {
  ASSIGN_OR_RETURN(auto response, Call(*stubs_->networks, &v1::NetworkService::Stub::GetNetwork,
                                       v1::GetNetworkRequest()));
  return std::move(*response.mutable_network());
}

absl::StatusOr<v1::Network> Client::SetNetwork(const v1::SetNetworkRequest& request) {
  absl::StatusOr<v1::SetNetworkResponse> response;
  const auto once = [&] {
    response = CallOnce(*stubs_->networks, &v1::NetworkService::Stub::SetNetwork, request);
    return response.status();
  };
  // Of a revision only once: a second answer would be that another one is there.
  RETURN_IF_ERROR(request.has_revision() ? Explain(once()) : Retry(once));
  return std::move(*response->mutable_network());
}

absl::StatusOr<v1::MeasureNetworkResponse::Result> Client::MeasureNetwork(
    const v1::MeasureNetworkRequest& request, OnMeasured on_progress) {
  grpc::ClientContext context;
  SetDeadline(context, std::min(kRpcDeadlineMax, options_.timeout));
  const auto reader = stubs_->networks->MeasureNetwork(&context, request);
  v1::MeasureNetworkResponse message;
  v1::MeasureNetworkResponse::Result result;
  while (reader->Read(&message)) {
    if (message.has_progress()) on_progress(message.progress());
    if (message.has_result()) result = std::move(*message.mutable_result());
  }
  RETURN_IF_ERROR(Explain(FromGrpcStatus(reader->Finish())));
  return result;
}

absl::StatusOr<v1::CalibrateGpusResponse> Client::CalibrateGpus(
    const v1::CalibrateGpusRequest& request) {
  grpc::ClientContext context;
  SetDeadline(context, std::min(kRpcDeadlineMax, options_.timeout));
  const auto reader = stubs_->networks->CalibrateGpus(&context, request);
  v1::CalibrateGpusResponse response;
  while (reader->Read(&response)) {
  }
  RETURN_IF_ERROR(Explain(FromGrpcStatus(reader->Finish())));
  return response;
}

absl::StatusOr<v1::PlanReshardResponse> Client::Plan(const v1::PlanReshardRequest& request) {
  RETURN_IF_ERROR(CheckBytes(request));
  return Call(*stubs_->reshards, &v1::ReshardService::Stub::PlanReshard, request);
}

FollowerOptions Client::OptionsFor(absl::string_view noun) const {
  return {.noun = std::string(noun),
          .address = address_,
          .follow_for = options_.follow_for,
          .timeout = options_.timeout,
          .seed = RandomNumber()};
}

absl::StatusOr<v1::Operation> Client::FollowOperation(const v1::ExecuteReshardRequest* request,
                                                      const std::string& id, OnChange on_change) {
  Follower<v1::Operation> follower(OptionsFor("operation"), on_change);
  const auto open = [&](grpc::ClientContext& context) {
    if (request == nullptr) return absl::InvalidArgumentError("operation id: found none");
    return follower.Read(stubs_->reshards->ExecuteReshard(&context, *request),
                         &v1::ExecuteReshardResponse::mutable_operation);
  };
  const auto watch = [&](grpc::ClientContext& context, const std::string& known) {
    const auto watched = WithId<v1::WatchOperationRequest>(known);
    return follower.Read(stubs_->operations->WatchOperation(&context, watched),
                         &v1::WatchOperationResponse::mutable_operation);
  };
  return follower.Follow(open, watch, id);
}

absl::StatusOr<v1::Operation> Client::Execute(const v1::ExecuteReshardRequest& request,
                                              OnChange on_change) {
  RETURN_IF_ERROR(CheckBytes(request));
  return FollowOperation(&request, "", on_change);
}

absl::StatusOr<v1::Operation> Client::Start(const v1::ExecuteReshardRequest& request) {
  RETURN_IF_ERROR(CheckBytes(request));
  absl::StatusOr<v1::ExecuteReshardResponse> first;
  // Made again it is the same operation, by its request id.
  RETURN_IF_ERROR(Retry([&] {
    grpc::ClientContext context;
    SetDeadline(context, options_.call_timeout);
    first = ReadFirst(context, stubs_->reshards->ExecuteReshard(&context, request));
    return first.status();
  }));
  return std::move(*first->mutable_operation());
}

absl::StatusOr<v1::Operation> Client::Watch(const std::string& id, OnChange on_change) {
  return FollowOperation(nullptr, id, on_change);
}

absl::StatusOr<v1::Operation> Client::GetOperation(const std::string& id) {
  ASSIGN_OR_RETURN(auto response,
                   Call(*stubs_->operations, &v1::OperationService::Stub::GetOperation,
                        WithId<v1::GetOperationRequest>(id)));
  return std::move(*response.mutable_operation());
}

absl::StatusOr<std::vector<v1::Operation>> Client::ListOperations(int64_t count) {
  return Pages<v1::Operation>(*stubs_->operations, &v1::OperationService::Stub::ListOperations,
                              &v1::ListOperationsResponse::operations, count);
}

absl::Status Client::CancelOperation(const std::string& id, const std::string& reason) {
  auto request = WithId<v1::CancelOperationRequest>(id);
  request.set_reason(reason);
  return Call(*stubs_->operations, &v1::OperationService::Stub::CancelOperation, request).status();
}

absl::StatusOr<int64_t> Client::CreatePipeline(const v1::PipelineSpec& pipeline) {
  v1::CreatePipelineRequest request;
  *request.mutable_pipeline() = pipeline;
  ASSIGN_OR_RETURN(auto response,
                   Call(*stubs_->pipelines, &v1::PipelineService::Stub::CreatePipeline, request));
  return response.revision();
}

absl::StatusOr<v1::PipelineSpec> Client::GetPipeline(const std::string& name) {
  ASSIGN_OR_RETURN(auto response, Call(*stubs_->pipelines, &v1::PipelineService::Stub::GetPipeline,
                                       Named<v1::GetPipelineRequest>(name)));
  return std::move(*response.mutable_pipeline());
}

absl::StatusOr<std::vector<v1::PipelineSpec>> Client::ListPipelines() {
  return Pages<v1::PipelineSpec>(*stubs_->pipelines, &v1::PipelineService::Stub::ListPipelines,
                                 &v1::ListPipelinesResponse::pipelines);
}

absl::Status Client::DeletePipeline(const std::string& name) {
  // Once: a second answer would be that there is none.
  return Explain(CallOnce(*stubs_->pipelines, &v1::PipelineService::Stub::DeletePipeline,
                          Named<v1::DeletePipelineRequest>(name))
                     .status());
}

absl::StatusOr<v1::PipelinePlan> Client::PlanPipeline(const v1::PlanPipelineRequest& request) {
  ASSIGN_OR_RETURN(auto response,
                   Call(*stubs_->pipelines, &v1::PipelineService::Stub::PlanPipeline, request));
  return std::move(*response.mutable_plan());
}

absl::StatusOr<v1::PipelineRun> Client::FollowPipelineRun(const v1::StartPipelineRequest* request,
                                                          const std::string& id,
                                                          OnRunChange on_change) {
  Follower<v1::PipelineRun> follower(OptionsFor("pipeline run"), on_change);
  const auto open = [&](grpc::ClientContext& context) {
    if (request == nullptr) return absl::InvalidArgumentError("pipeline run id: found none");
    return follower.Read(stubs_->pipelines->StartPipeline(&context, *request),
                         &v1::StartPipelineResponse::mutable_run);
  };
  const auto watch = [&](grpc::ClientContext& context, const std::string& known) {
    const auto watched = WithId<v1::WatchPipelineRunRequest>(known);
    return follower.Read(stubs_->pipelines->WatchPipelineRun(&context, watched),
                         &v1::WatchPipelineRunResponse::mutable_run);
  };
  return follower.Follow(open, watch, id);
}

absl::StatusOr<v1::PipelineRun> Client::StartPipeline(const v1::StartPipelineRequest& request,
                                                      OnRunChange on_change) {
  return FollowPipelineRun(&request, "", on_change);
}

absl::StatusOr<v1::PipelineRun> Client::WatchPipelineRun(const std::string& id,
                                                         OnRunChange on_change) {
  return FollowPipelineRun(nullptr, id, on_change);
}

absl::StatusOr<v1::PipelineRun> Client::GetPipelineRun(const std::string& id) {
  const auto request = WithId<v1::WatchPipelineRunRequest>(id);
  absl::StatusOr<v1::WatchPipelineRunResponse> first;
  RETURN_IF_ERROR(Retry([&] {
    grpc::ClientContext context;
    SetDeadline(context, options_.call_timeout);
    // The service has no call for a run alone: its watch tells the present state first.
    first = ReadFirst(context, stubs_->pipelines->WatchPipelineRun(&context, request));
    return first.status();
  }));
  return std::move(*first->mutable_run());
}

absl::StatusOr<std::vector<v1::PipelineRun>> Client::ListPipelineRuns(int64_t count) {
  return Pages<v1::PipelineRun>(*stubs_->pipelines, &v1::PipelineService::Stub::ListPipelineRuns,
                                &v1::ListPipelineRunsResponse::runs, count);
}

absl::Status Client::StopPipelineRun(const std::string& id, bool now) {
  auto request = WithId<v1::StopPipelineRunRequest>(id);
  request.set_now(now);
  return Call(*stubs_->pipelines, &v1::PipelineService::Stub::StopPipelineRun, request).status();
}

absl::StatusOr<std::vector<v1::Worker>> Client::ListWorkers() {
  return Pages<v1::Worker>(*stubs_->workers, &v1::WorkerService::Stub::ListWorkers,
                           &v1::ListWorkersResponse::workers);
}

absl::Status Client::DrainWorker(const std::string& name) {
  return Call(*stubs_->workers, &v1::WorkerService::Stub::DrainWorker,
              Named<v1::DrainWorkerRequest>(name))
      .status();
}

absl::Status Client::ForgetWorker(const std::string& name) {
  return Call(*stubs_->workers, &v1::WorkerService::Stub::ForgetWorker,
              Named<v1::ForgetWorkerRequest>(name))
      .status();
}

std::string NewRequestId() { return absl::StrFormat("%016x%016x", RandomNumber(), RandomNumber()); }

}  // namespace crossmesh
