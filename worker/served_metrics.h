#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>

namespace crossmesh {

class MetricsExporter;
class RpcMetrics;
class WorkerMetrics;
struct WorkerOptions;

// What a worker records, and where it is scraped, if anywhere. Thread-safe.
class ServedMetrics {
 public:
  // As MetricsExporter::Start says.
  static absl::StatusOr<std::unique_ptr<ServedMetrics>> Create(const WorkerOptions& options);
  ~ServedMetrics();

  WorkerMetrics& worker() { return *worker_; }
  RpcMetrics& rpc() { return *rpc_; }
  std::string address() const;  // empty: none

 private:
  ServedMetrics();

  const std::unique_ptr<WorkerMetrics> worker_;
  const std::unique_ptr<RpcMetrics> rpc_;
  std::unique_ptr<MetricsExporter> exporter_;  // null: metrics are not served
};

}  // namespace crossmesh
