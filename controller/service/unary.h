#pragma once

#include "common/base/cancel_check.h"
#include "common/rpc/server.h"
#include "common/rpc/status_codec.h"
#include "controller/dispatch/task_queue.h"

#include <utility>

#include <absl/functional/any_invocable.h>
#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

namespace crossmesh {

// Ends a unary call whose response, if any, is filled in.
inline grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                        const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

// Serves a unary call of ordinary size by `handler`, which fills in the response. A larger request
// is refused as CheckRequestBytes says.
inline grpc::ServerUnaryReactor* Serve(grpc::CallbackServerContext* context,
                                       const google::protobuf::Message& request,
                                       absl::FunctionRef<absl::Status()> handler) {
  const absl::Status size = CheckRequestBytes(request);
  return Answer(context, size.ok() ? handler() : size);
}

// Serves a unary call by `handler` on a planner's thread. ResourceExhausted when too many requests
// wait for one.
inline grpc::ServerUnaryReactor* ServeAtPlanner(
    grpc::CallbackServerContext* context, TaskQueue& planners,
    absl::AnyInvocable<absl::Status(CancelCheck)> handler) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const bool taken = planners.Post([context, reactor, handler = std::move(handler)]() mutable {
    reactor->Finish(ToGrpcStatus(handler([context] { return context->IsCancelled(); })));
  });
  if (!taken) {
    reactor->Finish(
        ToGrpcStatus(absl::ResourceExhaustedError("too many requests wait for the planner")));
  }
  return reactor;
}

}  // namespace crossmesh
