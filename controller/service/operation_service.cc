#include "controller/service/operation_service.h"

#include "common/base/status_macros.h"
#include "common/rpc/server.h"
#include "controller/dispatch/running_operation.h"
#include "controller/service/paging.h"
#include "controller/service/run_watch.h"
#include "controller/service/unary.h"

#include <memory>
#include <string>
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
  ASSIGN_OR_RETURN(const std::shared_ptr<const v1::Operation> operation,
                   registry_.Get(request.id()));
  *response.mutable_operation() = *operation;
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
  for (const auto& operation : registry_.List(request.page_token(), limit)) {
    *response.add_operations() = *operation;
  }
  if (response.operations_size() == limit) {
    response.set_next_page_token(response.operations(limit - 1).id());
  }
  return absl::OkStatus();
}

grpc::ServerWriteReactor<v1::WatchOperationResponse>* OperationService::WatchOperation(
    grpc::CallbackServerContext* /*context*/, const v1::WatchOperationRequest* request) {
  absl::StatusOr<std::string> id = request->id();
  if (absl::Status status = CheckRequestBytes(*request); !status.ok()) id = std::move(status);
  return RunWatch<v1::Operation, v1::WatchOperationResponse>::Follow(
      registry_, id, &v1::WatchOperationResponse::mutable_operation);
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
  running_.With(request.id(), [reason = request.reason()](RunningOperation& operation) {
    operation.Cancel(reason.empty() ? "no reason given" : reason);
  });
  return absl::OkStatus();
}

}  // namespace crossmesh
