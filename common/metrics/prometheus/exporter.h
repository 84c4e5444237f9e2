#pragma once

#include "common/base/mutex.h"
#include "common/metrics/metric_family.h"
#include "common/metrics/probes.h"
#include "common/metrics/prometheus/web_server.h"

#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <prometheus/collectable.h>

namespace crossmesh {

// Serves a daemon's metrics over HTTP, at /metrics, in Prometheus' text format, and the answers to
// probes beside them. Destruction takes up to 2 s, as that of WebServer. Confined to the thread
// that made it; what it serves is recorded by others meanwhile.
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
  // Serves /livez, /readyz and /startupz from now on: 200 or 503, and a line with the reason.
  void ServeProbes(const Probes& probes);

 private:
  MetricsExporter(const Options& options, std::string address, std::unique_ptr<WebServer> server);
  std::string Text() const;

  const std::string address_;
  MetricSet metrics_;  // its own
  Gauges build_;
  Gauges insecure_;
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<const prometheus::Collectable>> collectors_ ABSL_GUARDED_BY(mutex_);
  const std::unique_ptr<WebServer> server_;
};

}  // namespace crossmesh
