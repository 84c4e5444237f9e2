#pragma once

#include "common/metrics/controller_metrics.h"
#include "common/metrics/label_set.h"
#include "common/metrics/rpc_metrics.h"
#include "common/metrics/worker_metrics.h"

#include <memory>
#include <span>

#include <prometheus/registry.h>

namespace crossmesh {

// Recorders whose metrics are served by the registry, which outlives them. Each at most once per
// registry.
std::unique_ptr<ControllerMetrics> MakeControllerMetrics(prometheus::Registry& registry);
std::unique_ptr<WorkerMetrics> MakeWorkerMetrics(prometheus::Registry& registry);
// Of calls to `methods` (kControllerMethods, kWorkerMethods); calls of others are left out.
std::unique_ptr<RpcMetrics> MakeRpcMetrics(prometheus::Registry& registry,
                                           std::span<const RpcMethod> methods);

}  // namespace crossmesh
