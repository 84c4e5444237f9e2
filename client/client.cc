#include "client/client.h"

#include "client/client_calls.h"
#include "client/follower.h"
#include "client/pause.h"
#include "common/base/backoff.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/rpc/address.h"
#include "common/rpc/deadline.h"
#include "common/rpc/push_back.h"
#include "common/rpc/server.h"
#include "common/rpc/status_codec.h"
#include "common/wire/tensor_codec.h"

#include <algorithm>
#include <optional>
#include <random>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <google/protobuf/message.h>
#include <grpcpp/client_context.h>

namespace crossmesh {
namespace {

constexpr size_t kTensorsPerMessage = 4096;
constexpr absl::Duration kRetryForOne = absl::Seconds(5);
constexpr absl::Duration kRetryForSeveral = absl::Seconds(15);
// Between attempts while several controllers are asked which one leads.
constexpr absl::Duration kSearchPauseMax = absl::Milliseconds(250);

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

// Of a redistribution that names no strategy, `named` with the one that there is: a controller that
// knows no redistributions refuses that, and would move summands as if they were values otherwise.
template <typename Request>
const Request& WithStrategy(const Request& request, Request& named) {
  if (!request.spec().has_redistribution() || !request.spec().strategy().empty()) return request;
  named = request;
  named.mutable_spec()->set_strategy("redistribute");
  return named;
}

// What of it came after the first release; empty: nothing.
absl::string_view LaterThings(const v1::ReshardSpec& spec) {
  return spec.has_redistribution() ? "redistributions" : "";
}

}  // namespace

absl::StatusOr<Client> Client::Connect(const std::string& address, const ClientOptions& options) {
  ASSIGN_OR_RETURN(std::vector<std::string> addresses, ParseAddressList(address));
  auto controllers = std::make_unique<Controllers>(std::move(addresses), options.insecure);
  RETURN_IF_ERROR(controllers->Check());
  ClientOptions bounded = options;
  bounded.call_timeout = std::min(options.call_timeout, options.timeout);
  const absl::Duration retry_for =
      options.retry_for.value_or(controllers->several() ? kRetryForSeveral : kRetryForOne);
  bounded.retry_for = std::min(retry_for, options.timeout);
  return Client(address, bounded, std::move(controllers));
}

Client::Client(std::string address, const ClientOptions& options,
               std::unique_ptr<Controllers> controllers)
    : address_(std::move(address)), options_(options), controllers_(std::move(controllers)) {}

Client::Client(Client&& other) noexcept = default;
Client& Client::operator=(Client&& other) noexcept = default;
Client::~Client() = default;

absl::Status Client::Explain(const absl::Status& status) const {
  switch (status.code()) {
    case absl::StatusCode::kUnimplemented:
      // What a controller cannot do has a message: gRPC itself does not know the call.
      if (!status.message().empty()) return status;
      return absl::UnimplementedError(
          absl::StrCat("controller ", address_,
                       ": expected one that has this call, as this client of version ", Version(),
                       " has, found none; the controller is of another release: upgrade the older "
                       "one of them"));
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

absl::Status Client::ExplainRefusal(const absl::Status& status, absl::string_view later) {
  if (later.empty() || !absl::IsInvalidArgument(status)) return status;
  // Which came with what is asked for.
  if (!absl::IsUnimplemented(GetController().status())) return status;
  return absl::FailedPreconditionError(absl::StrCat(
      "controller ", address_, ": expected one that knows ", later, ", as this client of version ",
      Version(), " does, found one of an older release, which says: ", status.message(),
      "; upgrade the controller"));
}

Backoff Client::NewBackoff() const {
  Backoff::Options options;
  if (controllers_->several()) options.max = kSearchPauseMax;
  return Backoff(options, RandomNumber());
}

absl::Status Client::Retry(absl::FunctionRef<absl::Status(Stubs&)> attempt) const {
  const RealClock clock;
  const absl::Duration until = clock.Monotonic() + *options_.retry_for;
  // A seed from the system costs a tenth of what a short call does: taken where it is needed.
  std::optional<Backoff> backoff;
  while (true) {
    const absl::Status status = Explain(controllers_->Call(attempt));
    if (status.ok()) return status;
    if (!backoff.has_value()) backoff.emplace(NewBackoff());
    const std::optional<absl::Duration> push_back = PushBackOf(status);
    const absl::Duration pause = push_back.value_or(backoff->Next());
    const bool may_repeat = absl::IsUnavailable(status) || push_back.has_value();
    if (!may_repeat || clock.Monotonic() + pause >= until) return status;
    Pause(pause);
  }
}

absl::StatusOr<int64_t> Client::CreateMesh(const v1::Mesh& mesh) {
  v1::CreateMeshRequest request;
  *request.mutable_mesh() = mesh;
  request.set_request_id(NewRequestId());
  ASSIGN_OR_RETURN(auto response,
                   Call(&Stubs::meshes, &v1::MeshService::Stub::CreateMesh, request));
  return response.revision();
}

absl::StatusOr<v1::GetMeshResponse> Client::GetMesh(const std::string& name) {
  return Call(&Stubs::meshes, &v1::MeshService::Stub::GetMesh, Named<v1::GetMeshRequest>(name));
}

absl::StatusOr<std::vector<v1::Mesh>> Client::ListMeshes() {
  return Pages<v1::Mesh>(&Stubs::meshes, &v1::MeshService::Stub::ListMeshes,
                         &v1::ListMeshesResponse::meshes);
}

absl::Status Client::DeleteMesh(const std::string& name, int64_t revision) {
  auto request = Named<v1::DeleteMeshRequest>(name);
  request.set_revision(revision);
  // Once: a second answer would be that there is none.
  return Explain(CallOnce(&Stubs::meshes, &v1::MeshService::Stub::DeleteMesh, request).status());
}

absl::StatusOr<v1::PutManifestResponse> Client::PutManifest(const std::string& name,
                                                            const Manifest& manifest) {
  v1::PutManifestResponse response;
  const auto attempt = [&](Stubs& stubs) {
    grpc::ClientContext context;
    SetDeadline(context, options_.call_timeout);
    const auto writer = stubs.manifests->PutManifest(&context, &response);
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
  const auto attempt = [&](Stubs& stubs) {
    manifest.Clear();
    grpc::ClientContext context;
    SetDeadline(context, options_.call_timeout);
    const auto reader = stubs.manifests->GetManifest(&context, Named<v1::GetManifestRequest>(name));
    v1::GetManifestResponse message;
    while (reader->Read(&message)) manifest.mutable_tensors()->MergeFrom(message.tensors());
    return FromGrpcStatus(reader->Finish());
  };
  RETURN_IF_ERROR(Retry(attempt));
  return FromProto(manifest);
}

absl::StatusOr<std::vector<v1::ListManifestsResponse::Entry>> Client::ListManifests() {
  return Pages<v1::ListManifestsResponse::Entry>(&Stubs::manifests,
                                                 &v1::ManifestService::Stub::ListManifests,
                                                 &v1::ListManifestsResponse::manifests);
}

absl::Status Client::DeleteManifest(const std::string& name, int64_t revision) {
  auto request = Named<v1::DeleteManifestRequest>(name);
  request.set_revision(revision);
  return Explain(
      CallOnce(&Stubs::manifests, &v1::ManifestService::Stub::DeleteManifest, request).status());
}

absl::StatusOr<v1::Network> Client::GetNetwork() {
  ASSIGN_OR_RETURN(auto response, Call(&Stubs::networks, &v1::NetworkService::Stub::GetNetwork,
                                       v1::GetNetworkRequest()));
  return std::move(*response.mutable_network());
}

absl::StatusOr<v1::Network> Client::SetNetwork(const v1::SetNetworkRequest& request) {
  constexpr auto kMethod = &v1::NetworkService::Stub::SetNetwork;
  // Of a revision only once: a second answer would be that another one is there.
  absl::StatusOr<v1::SetNetworkResponse> response;
  if (request.has_revision()) {
    response = CallOnce(&Stubs::networks, kMethod, request);
    RETURN_IF_ERROR(Explain(response.status()));
  } else {
    ASSIGN_OR_RETURN(response, Call(&Stubs::networks, kMethod, request));
  }
  return std::move(*response->mutable_network());
}

absl::StatusOr<v1::MeasureNetworkResponse::Result> Client::MeasureNetwork(
    const v1::MeasureNetworkRequest& request, OnMeasured on_progress) {
  v1::MeasureNetworkResponse::Result result;
  RETURN_IF_ERROR(Explain(controllers_->Call([&](Stubs& stubs) {
    grpc::ClientContext context;
    SetDeadline(context, std::min(kRpcDeadlineMax, options_.timeout));
    const auto reader = stubs.networks->MeasureNetwork(&context, request);
    v1::MeasureNetworkResponse message;
    while (reader->Read(&message)) {
      if (message.has_progress()) on_progress(message.progress());
      if (message.has_result()) result = std::move(*message.mutable_result());
    }
    return FromGrpcStatus(reader->Finish());
  })));
  return result;
}

absl::StatusOr<v1::CalibrateGpusResponse> Client::CalibrateGpus(
    const v1::CalibrateGpusRequest& request) {
  v1::CalibrateGpusResponse response;
  RETURN_IF_ERROR(Explain(controllers_->Call([&](Stubs& stubs) {
    grpc::ClientContext context;
    SetDeadline(context, std::min(kRpcDeadlineMax, options_.timeout));
    const auto reader = stubs.networks->CalibrateGpus(&context, request);
    while (reader->Read(&response)) {
    }
    return FromGrpcStatus(reader->Finish());
  })));
  return response;
}

absl::StatusOr<v1::PlanReshardResponse> Client::Plan(const v1::PlanReshardRequest& request) {
  RETURN_IF_ERROR(CheckBytes(request));
  v1::PlanReshardRequest named;
  absl::StatusOr<v1::PlanReshardResponse> response =
      Call(&Stubs::reshards, &v1::ReshardService::Stub::PlanReshard, WithStrategy(request, named));
  if (response.ok()) return response;
  return ExplainRefusal(response.status(), LaterThings(request.spec()));
}

FollowerOptions Client::OptionsFor(absl::string_view noun) const {
  return {.noun = std::string(noun),
          .address = address_,
          .follow_for = options_.follow_for,
          .timeout = options_.timeout,
          .backoff = NewBackoff()};
}

absl::StatusOr<v1::Operation> Client::FollowOperation(const v1::ExecuteReshardRequest* request,
                                                      const std::string& id, OnChange on_change) {
  Follower<v1::Operation> follower(OptionsFor("operation"), on_change);
  const auto open = [&](grpc::ClientContext& context) {
    if (request == nullptr) return absl::InvalidArgumentError("operation id: found none");
    return controllers_->Call([&](Stubs& stubs) {
      return follower.Read(stubs.reshards->ExecuteReshard(&context, *request),
                           &v1::ExecuteReshardResponse::mutable_operation);
    });
  };
  const auto watch = [&](grpc::ClientContext& context, const std::string& known) {
    const auto watched = WithId<v1::WatchOperationRequest>(known);
    return controllers_->Call([&](Stubs& stubs) {
      return follower.Read(stubs.operations->WatchOperation(&context, watched),
                           &v1::WatchOperationResponse::mutable_operation);
    });
  };
  return follower.Follow(open, watch, id);
}

absl::StatusOr<v1::Operation> Client::Execute(const v1::ExecuteReshardRequest& request,
                                              OnChange on_change) {
  RETURN_IF_ERROR(CheckBytes(request));
  v1::ExecuteReshardRequest named;
  absl::StatusOr<v1::Operation> operation =
      FollowOperation(&WithStrategy(request, named), "", on_change);
  if (operation.ok()) return operation;
  return ExplainRefusal(operation.status(), LaterThings(request.spec()));
}

absl::StatusOr<v1::Operation> Client::Start(const v1::ExecuteReshardRequest& request) {
  RETURN_IF_ERROR(CheckBytes(request));
  v1::ExecuteReshardRequest named;
  const v1::ExecuteReshardRequest& sent = WithStrategy(request, named);
  absl::StatusOr<v1::ExecuteReshardResponse> first;
  // Made again it is the same operation, by its request id.
  const absl::Status status = Retry([&](Stubs& stubs) {
    grpc::ClientContext context;
    SetDeadline(context, options_.call_timeout);
    first = ReadFirst(context, stubs.reshards->ExecuteReshard(&context, sent));
    return first.status();
  });
  if (!status.ok()) return ExplainRefusal(status, LaterThings(request.spec()));
  return std::move(*first->mutable_operation());
}

absl::StatusOr<v1::Operation> Client::Watch(const std::string& id, OnChange on_change) {
  return FollowOperation(nullptr, id, on_change);
}

absl::StatusOr<v1::Operation> Client::GetOperation(const std::string& id) {
  ASSIGN_OR_RETURN(auto response,
                   Call(&Stubs::operations, &v1::OperationService::Stub::GetOperation,
                        WithId<v1::GetOperationRequest>(id)));
  return std::move(*response.mutable_operation());
}

absl::StatusOr<std::vector<v1::Operation>> Client::ListOperations(int64_t count) {
  return Pages<v1::Operation>(&Stubs::operations, &v1::OperationService::Stub::ListOperations,
                              &v1::ListOperationsResponse::operations, count);
}

absl::Status Client::CancelOperation(const std::string& id, const std::string& reason) {
  auto request = WithId<v1::CancelOperationRequest>(id);
  request.set_reason(reason);
  return Call(&Stubs::operations, &v1::OperationService::Stub::CancelOperation, request).status();
}

absl::StatusOr<std::vector<v1::Worker>> Client::ListWorkers() {
  return Pages<v1::Worker>(&Stubs::workers, &v1::WorkerService::Stub::ListWorkers,
                           &v1::ListWorkersResponse::workers);
}

absl::Status Client::DrainWorker(const std::string& name) {
  return Call(&Stubs::workers, &v1::WorkerService::Stub::DrainWorker,
              Named<v1::DrainWorkerRequest>(name))
      .status();
}

absl::Status Client::UndrainWorker(const std::string& name) {
  return Call(&Stubs::workers, &v1::WorkerService::Stub::UndrainWorker,
              Named<v1::UndrainWorkerRequest>(name))
      .status();
}

absl::Status Client::EvictWorker(const std::string& name) {
  // Once: a second answer would be that there is no live one.
  return Explain(CallOnce(&Stubs::workers, &v1::WorkerService::Stub::EvictWorker,
                          Named<v1::EvictWorkerRequest>(name))
                     .status());
}

absl::Status Client::ForgetWorker(const std::string& name) {
  return Call(&Stubs::workers, &v1::WorkerService::Stub::ForgetWorker,
              Named<v1::ForgetWorkerRequest>(name))
      .status();
}

std::string NewRequestId() { return absl::StrFormat("%016x%016x", RandomNumber(), RandomNumber()); }

}  // namespace crossmesh
