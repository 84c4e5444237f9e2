#pragma once

#include "common/metrics/prometheus/process_collector.h"

#include <memory>
#include <string>

#include <absl/status/statusor.h>
#include <prometheus/exposer.h>
#include <prometheus/registry.h>

namespace crossmesh {

// Serves a daemon's metrics over HTTP, at /metrics, in Prometheus' text format. Recorders register
// theirs with registry(). Destruction takes up to 2 s, which the library's web server waits for its
// own thread. Thread-safe.
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
  prometheus::Registry& registry() { return *registry_; }

 private:
  MetricsExporter(const Options& options, std::string address,
                  std::unique_ptr<prometheus::Exposer> exposer);

  const std::string address_;
  // The exposer keeps weak references to both.
  const std::shared_ptr<prometheus::Registry> registry_;
  const std::shared_ptr<ProcessCollector> process_;
  const std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace crossmesh
