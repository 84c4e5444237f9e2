#pragma once

#include "common/metrics/metric_family.h"

#include <vector>

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

namespace crossmesh {

// What a recorder has recorded, in the library's form. Thread-safe.
class MetricCollector final : public prometheus::Collectable {
 public:
  // `metrics` must outlive it.
  explicit MetricCollector(const MetricSet& metrics) : metrics_(metrics) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const MetricSet& metrics_;
};

}  // namespace crossmesh
