#include "worker/served_metrics.h"

#include "common/base/status_macros.h"
#include "common/metrics/prometheus/exporter.h"
#include "common/metrics/rpc_metrics.h"
#include "common/metrics/worker_metrics.h"
#include "worker/worker_options.h"

namespace crossmesh {

ServedMetrics::ServedMetrics()
    : worker_(std::make_unique<WorkerMetrics>()),
      rpc_(std::make_unique<RpcMetrics>(kWorkerMethods)) {}

ServedMetrics::~ServedMetrics() = default;

absl::StatusOr<std::unique_ptr<ServedMetrics>> ServedMetrics::Create(const WorkerOptions& options) {
  std::unique_ptr<ServedMetrics> metrics(new ServedMetrics);
  if (options.metrics_listen.empty()) return metrics;
  ASSIGN_OR_RETURN(metrics->exporter_, MetricsExporter::Start({.address = options.metrics_listen,
                                                               .role = "worker",
                                                               .insecure = options.insecure}));
  metrics->exporter_->Serve(metrics->worker_->metrics());
  metrics->exporter_->Serve(metrics->rpc_->metrics());
  return metrics;
}

std::string ServedMetrics::address() const {
  return exporter_ == nullptr ? "" : exporter_->address();
}

}  // namespace crossmesh
