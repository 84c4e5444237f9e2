#pragma once

#include "common/metrics/rpc_metrics.h"

#include <functional>
#include <memory>

#include <absl/status/status.h>
#include <grpcpp/support/server_interceptor.h>

namespace crossmesh {

// The interceptor of every server: one line in the log per call when it has ended, with method,
// code and duration, and the same for `metrics`, which outlives the server and may be null. Health
// checks and reflection are logged at debug level. A request that is malformed it answers with
// InvalidArgument. `may_answer`, if there is one: as RpcServer::Options.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeCallObserver(
    RpcMetrics* metrics, std::function<absl::Status()> may_answer);

}  // namespace crossmesh
