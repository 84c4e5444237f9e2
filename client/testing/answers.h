// What a played controller answers.

#pragma once

#include "common/rpc/status_codec.h"
#include "crossmesh/v1/operation_service.pb.h"
#include "crossmesh/v1/pipeline_service.pb.h"

#include <absl/status/status.h>
#include <grpcpp/grpcpp.h>

namespace crossmesh {

// Ends a unary call.
inline grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                        const absl::Status& status = absl::OkStatus()) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

// The operation "op-7".
inline v1::Operation OperationIn(v1::OperationState state) {
  v1::Operation operation;
  operation.set_id("op-7");
  operation.set_state(state);
  return operation;
}

// The run "pr-7".
inline v1::PipelineRun RunIn(v1::PipelineRunState state) {
  v1::PipelineRun run;
  run.set_id("pr-7");
  run.set_state(state);
  return run;
}

}  // namespace crossmesh
