#pragma once

#include "common/metrics/metric_family.h"
#include "common/metrics/prometheus/metric_collector.h"
#include "common/metrics/prometheus/process_collector.h"

#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <prometheus/exposer.h>

namespace crossmesh {

// Serves a daemon's metrics over HTTP, at /metrics, in Prometheus' text format. Destruction takes
// up to 2 s, which the library's web server waits for its own thread. Confined to the thread that
// made it; what it serves is recorded by others meanwhile.
class MetricsExporter {
 public:
  struct Options {
    // "127.0.0.1:9400", "[::1]:0"; the port 0 takes any free one. A loopback address unless
    // `insecure`: the library's HTTPS cannot be used, and metrics tell much.
    std::string address = "127.0.0.1:0";
    std::string role;       // "controller", "worker"
    bool insecure = false;  // of the daemon, for all its listeners; also shown as a metric
  };

  // InvalidArgument: an address that is not a numeric one with a port, or not a loopback address
  // without `insecure`. FailedPrecondition: the address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<MetricsExporter>> Start(const Options& options);

  // With the port that was bound.
  const std::string& address() const { return address_; }
  // Serves what a recorder records, from now on. `metrics` must outlive the exporter.
  void Serve(const MetricSet& metrics);

 private:
  MetricsExporter(const Options& options, std::string address,
                  std::unique_ptr<prometheus::Exposer> exposer);

  const std::string address_;
  MetricSet metrics_;  // its own
  Gauges build_;
  Gauges insecure_;
  // The exposer keeps weak references to these.
  const std::shared_ptr<ProcessCollector> process_;
  std::vector<std::shared_ptr<MetricCollector>> collectors_;
  const std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace crossmesh
