#pragma once

#include "common/rpc/status_codec.h"

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

}  // namespace crossmesh
