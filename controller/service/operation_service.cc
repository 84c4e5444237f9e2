#include "controller/service/operation_service.h"

#include "common/base/status_macros.h"
#include "common/rpc/server.h"
#include "controller/service/operation_watch.h"
#include "controller/service/paging.h"
#include "controller/service/unary.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

grpc::ServerUnaryReactor* OperationService::GetOperation(grpc::CallbackServerContext* context,
                                                         const v1::GetOperationRequest* request,
                                                         v1::GetOperationResponse* response) {
  return Answer(context, Get(*request, *response));
}

absl::Status OperationService::Get(const v1::GetOperationRequest& request,
                                   v1::GetOperationResponse& response) {
  RETURN_IF_ERROR(CheckRequestBytes(request));
  ASSIGN_OR_RETURN(*response.mutable_operation(), registry_.Get(request.id()));
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* OperationService::ListOperations(grpc::CallbackServerContext* context,
                                                           const v1::ListOperationsRequest* request,
                                                           v1::ListOperationsResponse* response) {
  return Answer(context, List(*request, *response));
}

absl::Status OperationService::List(const v1::ListOperationsRequest& request,
                                    v1::ListOperationsResponse& response) {
  RETURN_IF_ERROR(CheckRequestBytes(request));
  ASSIGN_OR_RETURN(const int32_t limit, PageSize(request.page_size()));
  for (v1::Operation& operation : registry_.List(request.page_token(), limit)) {
    *response.add_operations() = std::move(operation);
  }
  if (response.operations_size() == limit) {
    response.set_next_page_token(response.operations(limit - 1).id());
  }
  return absl::OkStatus();
}

grpc::ServerWriteReactor<v1::WatchOperationResponse>* OperationService::WatchOperation(
    grpc::CallbackServerContext* /*context*/, const v1::WatchOperationRequest* request) {
  using Watch = OperationWatch<v1::WatchOperationResponse>;
  const absl::Status status = CheckRequestBytes(*request);
  return status.ok() ? Watch::Follow(registry_, request->id()) : Watch::Refuse(registry_, status);
}

grpc::ServerUnaryReactor* OperationService::CancelOperation(
    grpc::CallbackServerContext* context, const v1::CancelOperationRequest* request,
    v1::CancelOperationResponse* /*response*/) {
  return Answer(context, Cancel(*request));
}

absl::Status OperationService::Cancel(const v1::CancelOperationRequest& request) {
  if (request.reason().size() > kReasonBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("reason: expected at most ",
                                                   static_cast<size_t>(kReasonBytesMax),
                                                   " bytes, found ", request.reason().size()));
  }
  // NotFound for an operation that never was; one that has ended stays as it is.
  RETURN_IF_ERROR(registry_.Get(request.id()).status());
  runner_.Cancel(request.id(), request.reason().empty() ? "no reason given" : request.reason());
  return absl::OkStatus();
}

}  // namespace crossmesh
