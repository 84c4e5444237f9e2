#include "controller/service/operation_service.h"

#include "common/base/status_macros.h"
#include "controller/dispatch/running_operation.h"
#include "controller/dispatch/running_table.h"
#include "controller/service/job_registry.h"
#include "controller/service/job_watch.h"
#include "controller/service/paging.h"
#include "controller/service/unary.h"

#include <memory>

#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

namespace crossmesh {

grpc::ServerUnaryReactor* OperationService::GetOperation(grpc::CallbackServerContext* context,
                                                         const v1::GetOperationRequest* request,
                                                         v1::GetOperationResponse* response) {
  return Serve(context, *request, [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::shared_ptr<const v1::Operation> operation,
                     registry_.Get(request->id()));
    *response->mutable_operation() = *operation;
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* OperationService::ListOperations(grpc::CallbackServerContext* context,
                                                           const v1::ListOperationsRequest* request,
                                                           v1::ListOperationsResponse* response) {
  return Serve(context, *request, [&] {
    return ListRuns(registry_, *request, *response, [&](const v1::Operation& operation) {
      *response->add_operations() = operation;
    });
  });
}

grpc::ServerWriteReactor<v1::WatchOperationResponse>* OperationService::WatchOperation(
    grpc::CallbackServerContext* /*context*/, const v1::WatchOperationRequest* request) {
  return JobWatch<v1::Operation, v1::WatchOperationResponse>::Follow(
      registry_, WatchedId(*request), &v1::WatchOperationResponse::mutable_operation);
}

grpc::ServerUnaryReactor* OperationService::CancelOperation(
    grpc::CallbackServerContext* context, const v1::CancelOperationRequest* request,
    v1::CancelOperationResponse* /*response*/) {
  return Serve(context, *request, [&] { return Cancel(*request); });
}

absl::Status OperationService::Cancel(const v1::CancelOperationRequest& request) {
  if (request.reason().size() > kReasonBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("reason: expected at most ",
                                                   static_cast<size_t>(kReasonBytesMax),
                                                   " bytes, found ", request.reason().size()));
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<const v1::Operation> now, registry_.Get(request.id()));
  // What is asked for again is no error, what cannot be had any more is one.
  if (now->state() == v1::OPERATION_STATE_CANCELLED) return absl::OkStatus();
  if (now->has_end_time()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "operation ", request.id(), ": expected one that runs, found one that has ended: ",
        absl::StripPrefix(v1::OperationState_Name(now->state()), "OPERATION_STATE_")));
  }
  running_.With(request.id(), [reason = request.reason()](RunningOperation& operation) {
    operation.Cancel(reason.empty() ? "no reason given" : reason);
  });
  return absl::OkStatus();
}

}  // namespace crossmesh
