#pragma once

#include "common/metrics/label_set.h"
#include "common/metrics/metric_family.h"

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// What a server records of calls to `methods` (kControllerMethods, kWorkerMethods); calls of others
// are left out. Thread-safe; never blocks.
class RpcMetrics {
 public:
  explicit RpcMetrics(std::span<const RpcMethod> methods);

  const MetricSet& metrics() const { return metrics_; }

  // `service` and `method` as in "crossmesh.v1.MeshService" and "GetMesh".
  void CallStarted(absl::string_view service, absl::string_view method);
  // Once for each CallStarted. A call whose client went away has the code kCancelled.
  void CallEnded(absl::string_view service, absl::string_view method, absl::StatusCode code,
                 absl::Duration duration);
  void ConnectionRefused(ConnectionRefusal reason) { refused_.Increment(reason); }

 private:
  // Its place; nothing for a method that is not counted.
  std::optional<size_t> Find(absl::string_view service, absl::string_view method) const;

  std::map<std::pair<absl::string_view, absl::string_view>, size_t> places_;  // never changes
  MetricSet metrics_;
  Counters started_;
  Counters handled_;
  Histograms seconds_;
  Gauges in_flight_;
  Counters refused_;
};

}  // namespace crossmesh
