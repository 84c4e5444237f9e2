#pragma once

#include "common/metrics/rpc_metrics.h"

#include <memory>

#include <grpcpp/support/server_interceptor.h>

namespace crossmesh {

// The interceptor of every server: one line in the log per call when it has ended, with method,
// code and duration, and the same for `metrics`, which outlives the server and may be null. Health
// checks and reflection are logged at debug level. A request that is malformed it answers with
// InvalidArgument.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeCallObserver(
    RpcMetrics* metrics);

}  // namespace crossmesh
