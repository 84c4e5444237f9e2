#pragma once

#include "common/rpc/request_size.h"
#include "common/rpc/status_codec.h"
#include "controller/dispatch/planning_queue.h"

#include <cstdint>
#include <functional>
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

// What a call is answered that had no turn. One that finds too many waiting is told to come again
// after about the time that these wait.
absl::Status WithoutTurn(const absl::Status& turn, const PlanningQueue& planners);

// Serves a unary call by `handler` on a planner's thread. It ends the call by its argument, then or
// later. `cost` is as PlanningCost counts. WithoutTurn when there is no turn.
inline grpc::ServerUnaryReactor* ServeAtPlanner(
    grpc::CallbackServerContext* context, PlanningQueue& planners, int64_t cost,
    absl::AnyInvocable<void(std::function<void(const absl::Status&)>)> handler) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto work = [reactor, &planners, handler = std::move(handler)](const absl::Status& turn) mutable {
    const auto end = [reactor](const absl::Status& s) { reactor->Finish(ToGrpcStatus(s)); };
    turn.ok() ? handler(end) : end(WithoutTurn(turn, planners));
  };
  planners.Post({.client = context->peer(), .cost = cost, .work = std::move(work)});
  return reactor;
}

}  // namespace crossmesh
