#pragma once

#include "common/metrics/label_set.h"
#include "common/metrics/metric_names.h"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <absl/strings/string_view.h>
#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/labels.h>
#include <prometheus/registry.h>

namespace crossmesh {

// The label sets of one dimension of a metric, in the order of an enumeration.
using LabelSets = std::vector<prometheus::Labels>;

// {key="a"}, {key="b"}, ... for all values.
LabelSets OneOf(absl::string_view key, std::span<const absl::string_view> values);
// {transport, link} in the order of TransportLink.
LabelSets TransportLinkLabels();
// {grpc_service, grpc_method} of all methods.
LabelSets MethodLabels(std::span<const RpcMethod> methods);

prometheus::Family<prometheus::Counter>& AddFamily(prometheus::Registry& registry,
                                                   const MetricName& name, prometheus::Counter*);
prometheus::Family<prometheus::Gauge>& AddFamily(prometheus::Registry& registry,
                                                 const MetricName& name, prometheus::Gauge*);
prometheus::Family<prometheus::Histogram>& AddFamily(prometheus::Registry& registry,
                                                     const MetricName& name,
                                                     prometheus::Histogram*);

// A metric family with closed label sets: every combination of `major` and `minor` labels is
// created at once, so that it is served from the start, and found again by its place, without a
// look-up. Thread-safe, as the library's metrics are.
template <typename Metric>
class LabelledMetrics {
 public:
  template <typename... Arguments>
  LabelledMetrics(prometheus::Registry& registry, const MetricName& name, const LabelSets& major,
                  const LabelSets& minor, const Arguments&... arguments)
      : minor_size_(minor.size()) {
    prometheus::Family<Metric>& family = AddFamily(registry, name, static_cast<Metric*>(nullptr));
    for (const prometheus::Labels& outer : major) {
      for (prometheus::Labels labels : minor) {
        labels.insert(outer.begin(), outer.end());
        metrics_.push_back(&family.Add(labels, arguments...));
      }
    }
  }

  Metric& At(size_t major, size_t minor = 0) const {
    return *metrics_[major * minor_size_ + minor];
  }

 private:
  size_t minor_size_;
  std::vector<Metric*> metrics_;
};

// For a dimension that a metric does not have.
inline const LabelSets kNoLabels = {{}};

using Counters = LabelledMetrics<prometheus::Counter>;
using Gauges = LabelledMetrics<prometheus::Gauge>;

// Histograms of the given upper bounds.
class Histograms : public LabelledMetrics<prometheus::Histogram> {
 public:
  Histograms(prometheus::Registry& registry, const MetricName& name, const LabelSets& labels,
             std::span<const double> bounds)
      : LabelledMetrics(registry, name, labels, kNoLabels,
                        prometheus::Histogram::BucketBoundaries(bounds.begin(), bounds.end())) {}
};

}  // namespace crossmesh
