#include "common/metrics/metric_family.h"

#include <algorithm>

namespace crossmesh {

LabelSets OneOf(absl::string_view key, std::span<const absl::string_view> values) {
  LabelSets sets;
  for (const absl::string_view value : values) {
    sets.push_back({{std::string(key), std::string(value)}});
  }
  return sets;
}

LabelSets TransportLinkLabels() {
  LabelSets sets;
  for (const auto& [transport, link] : kTransportLinks) {
    sets.push_back({{"transport", std::string(transport)}, {"link", std::string(link)}});
  }
  return sets;
}

LabelSets MethodLabels(std::span<const RpcMethod> methods) {
  LabelSets sets;
  for (const RpcMethod& method : methods) {
    sets.push_back({{"grpc_service", std::string(method.service)},
                    {"grpc_method", std::string(method.method)}});
  }
  return sets;
}

MetricFamily::MetricFamily(MetricSet& set, const MetricName& name, Options options)
    : kind_(options.kind),
      name_(name),
      major_(std::move(options.major)),
      minor_(std::move(options.minor)),
      bounds_(options.bounds),
      values_(major_.size() * minor_.size()),
      counts_(kind_ == Kind::kHistogram ? values_.size() * (bounds_.size() + 1) : 0) {
  set.families_.push_back(this);
}

MetricLabels MetricFamily::labels(size_t place) const {
  MetricLabels labels = major_[place / minor_.size()];
  const MetricLabels& minor = minor_[place % minor_.size()];
  labels.insert(labels.end(), minor.begin(), minor.end());
  return labels;
}

std::vector<uint64_t> MetricFamily::counts(size_t place) const {
  std::vector<uint64_t> counts(bounds_.size() + 1);
  const auto* const first = &counts_[place * counts.size()];
  for (size_t bucket = 0; bucket < counts.size(); ++bucket) {
    counts[bucket] = first[bucket].load(std::memory_order_relaxed);
  }
  return counts;
}

void MetricFamily::ObserveAt(size_t place, double value) {
  // A bound belongs to the bucket that it ends.
  const auto bound = std::ranges::lower_bound(bounds_, value);
  const size_t bucket = bound - bounds_.begin();
  counts_[place * (bounds_.size() + 1) + bucket].fetch_add(1, std::memory_order_relaxed);
  AddAt(place, value);
}

}  // namespace crossmesh
