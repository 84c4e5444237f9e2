#pragma once

#include "common/metrics/metric_family.h"

#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// What a daemon records of its configuration. Thread-safe; never blocks.
class DaemonMetrics {
 public:
  const MetricSet& metrics() const { return metrics_; }

  // The configuration that holds from now on, as text. Its number tells whether two daemons, or a
  // daemon now and then, have the same.
  void ConfigurationLoaded(absl::string_view text, absl::Time now);
  void Reloaded(bool is_successful);

 private:
  MetricSet metrics_;
  Gauges hash_{metrics_, metric::kConfigHash};
  Gauges is_successful_{metrics_, metric::kConfigReloadSuccessful};
  Gauges loaded_at_{metrics_, metric::kConfigReloadTime};
  Counters reloads_{metrics_, metric::kConfigReloads, OneOf("result", kReloadResults)};
};

}  // namespace crossmesh
