#include "common/metrics/prometheus/metric_collector.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include <prometheus/client_metric.h>
#include <prometheus/metric_type.h>

namespace crossmesh {
namespace {

prometheus::ClientMetric::Histogram HistogramOf(const MetricFamily& family, size_t place) {
  prometheus::ClientMetric::Histogram histogram;
  const std::vector<uint64_t> counts = family.counts(place);
  uint64_t count = 0;
  for (size_t bucket = 0; bucket < counts.size(); ++bucket) {
    count += counts[bucket];
    const bool is_bounded = bucket < family.bounds().size();
    histogram.bucket.push_back({.cumulative_count = count,
                                .upper_bound = is_bounded
                                                   ? family.bounds()[bucket]
                                                   : std::numeric_limits<double>::infinity()});
  }
  histogram.sample_count = count;
  histogram.sample_sum = family.value(place);
  return histogram;
}

prometheus::ClientMetric SeriesOf(const MetricFamily& family, size_t place) {
  prometheus::ClientMetric series;
  for (auto& [key, value] : family.labels(place)) series.label.push_back({key, value});
  std::ranges::sort(series.label, {}, &prometheus::ClientMetric::Label::name);
  switch (family.kind()) {
    case MetricFamily::Kind::kCounter:
      series.counter.value = family.value(place);
      break;
    case MetricFamily::Kind::kGauge:
      series.gauge.value = family.value(place);
      break;
    case MetricFamily::Kind::kHistogram:
      series.histogram = HistogramOf(family, place);
      break;
  }
  return series;
}

// Most pairs of a method and a code never occur: they are served once they have been seen.
bool IsServed(const MetricFamily& family, size_t place) {
  if (family.name().name != metric::kRpcHandled.name || family.value(place) != 0) return true;
  return std::ranges::any_of(family.labels(place), [](const auto& label) {
    return label.second == "OK" || label.second == "UNAVAILABLE";
  });
}

prometheus::MetricType TypeOf(MetricFamily::Kind kind) {
  switch (kind) {
    case MetricFamily::Kind::kCounter:
      return prometheus::MetricType::Counter;
    case MetricFamily::Kind::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricFamily::Kind::kHistogram:
      break;
  }
  return prometheus::MetricType::Histogram;
}

}  // namespace

std::vector<prometheus::MetricFamily> MetricCollector::Collect() const {
  std::vector<prometheus::MetricFamily> collected;
  for (const MetricFamily* family : metrics_.families()) {
    prometheus::MetricFamily& added = collected.emplace_back();
    added.name = std::string(family->name().name);
    added.help = std::string(family->name().help);
    added.type = TypeOf(family->kind());
    for (size_t place = 0; place < family->size(); ++place) {
      if (IsServed(*family, place)) added.metric.push_back(SeriesOf(*family, place));
    }
  }
  return collected;
}

}  // namespace crossmesh
