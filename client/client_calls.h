// How a Client makes calls that answer once: again while the controller is unavailable, and page by
// page, and the stubs that it makes them by. Only what is in Client needs these.

#pragma once

#include "client/client.h"
#include "common/base/status_macros.h"
#include "common/rpc/deadline.h"
#include "common/rpc/status_codec.h"
#include "crossmesh/v1/controller_service.grpc.pb.h"
#include "crossmesh/v1/manifest_service.grpc.pb.h"
#include "crossmesh/v1/mesh_service.grpc.pb.h"
#include "crossmesh/v1/network_service.grpc.pb.h"
#include "crossmesh/v1/operation_service.grpc.pb.h"
#include "crossmesh/v1/pipeline_service.grpc.pb.h"
#include "crossmesh/v1/reshard_service.grpc.pb.h"
#include "crossmesh/v1/worker_service.grpc.pb.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <google/protobuf/repeated_ptr_field.h>
#include <grpcpp/client_context.h>

namespace crossmesh {

struct Client::Stubs {
  std::unique_ptr<v1::ControllerService::Stub> controllers;
  std::unique_ptr<v1::MeshService::Stub> meshes;
  std::unique_ptr<v1::ManifestService::Stub> manifests;
  std::unique_ptr<v1::NetworkService::Stub> networks;
  std::unique_ptr<v1::ReshardService::Stub> reshards;
  std::unique_ptr<v1::OperationService::Stub> operations;
  std::unique_ptr<v1::PipelineService::Stub> pipelines;
  std::unique_ptr<v1::WorkerService::Stub> workers;
};

template <typename Request>
Request WithId(const std::string& id) {
  Request request;
  request.set_id(id);
  return request;
}

template <typename Request>
Request Named(const std::string& name) {
  Request request;
  request.set_name(name);
  return request;
}

template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> Client::CallOnce(Stub& stub, Method<Stub, Request, Response> method,
                                          const Request& request) const {
  grpc::ClientContext context;
  SetDeadline(context, options_.call_timeout);
  Response response;
  RETURN_IF_ERROR(FromGrpcStatus((stub.*method)(&context, request, &response)));
  return response;
}

template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> Client::Call(Stub& stub, Method<Stub, Request, Response> method,
                                      const Request& request) const {
  absl::StatusOr<Response> response;
  RETURN_IF_ERROR(Retry([&] {
    response = CallOnce(stub, method, request);
    return response.status();
  }));
  return response;
}

inline constexpr int32_t kClientPageSize = 1000;

template <typename Item, typename Stub, typename Request, typename Response>
absl::StatusOr<std::vector<Item>> Client::Pages(
    Stub& stub, Method<Stub, Request, Response> method,
    const google::protobuf::RepeatedPtrField<Item>& (Response::*items)() const,
    int64_t count) const {
  std::vector<Item> all;
  Request request;
  do {
    const int64_t missing = count - std::ssize(all);
    request.set_page_size(static_cast<int32_t>(std::min<int64_t>(missing, kClientPageSize)));
    ASSIGN_OR_RETURN(const Response page, Call(stub, method, request));
    const google::protobuf::RepeatedPtrField<Item>& found = (page.*items)();
    const auto wanted = std::min<int64_t>(missing, found.size());
    all.insert(all.end(), found.begin(), found.begin() + wanted);
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && std::ssize(all) < count);
  return all;
}

}  // namespace crossmesh
