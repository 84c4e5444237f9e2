#pragma once

#include "common/metrics/label_set.h"
#include "common/metrics/metric_names.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// Keys and values of one series' labels.
using MetricLabels = std::vector<std::pair<std::string, std::string>>;
// The label sets of one dimension of a metric, in the order of an enumeration.
using LabelSets = std::vector<MetricLabels>;

// {key="a"}, {key="b"}, ... for all values.
LabelSets OneOf(absl::string_view key, std::span<const absl::string_view> values);
// {transport, link} in the order of TransportLink.
LabelSets TransportLinkLabels();
// {grpc_service, grpc_method} of all methods.
LabelSets MethodLabels(std::span<const RpcMethod> methods);

class MetricFamily;

// The families of one recorder, to be served. Immutable once the recorder is made.
class MetricSet {
 public:
  MetricSet() = default;
  // Families know where they are listed.
  MetricSet(const MetricSet&) = delete;
  MetricSet& operator=(const MetricSet&) = delete;

  const std::vector<const MetricFamily*>& families() const { return families_; }

 private:
  friend class MetricFamily;

  std::vector<const MetricFamily*> families_;
};

// All series of one name: every combination of `major` and `minor` labels, from the start and at 0,
// found by its place without a look-up. Thread-safe; never blocks.
class MetricFamily {
 public:
  enum class Kind : uint8_t { kCounter, kGauge, kHistogram };
  MetricFamily(const MetricFamily&) = delete;
  MetricFamily& operator=(const MetricFamily&) = delete;

  Kind kind() const { return kind_; }
  const MetricName& name() const { return name_; }
  std::span<const double> bounds() const { return bounds_; }  // of a histogram's buckets

  size_t size() const { return values_.size(); }
  MetricLabels labels(size_t place) const;
  // Of a histogram: the sum of what was observed.
  double value(size_t place) const { return values_[place].load(std::memory_order_relaxed); }
  // Of a histogram, by bucket; the last one is beyond all bounds.
  std::vector<uint64_t> counts(size_t place) const;

 protected:
  struct Options {
    Kind kind;
    LabelSets major;
    LabelSets minor = {{}};
    std::span<const double> bounds = {};
  };
  MetricFamily(MetricSet& set, const MetricName& name, Options options);

  // Places in both dimensions, as enumerators or numbers.
  template <typename Major = size_t, typename Minor = size_t>
  size_t PlaceOf(Major major = {}, Minor minor = {}) const {
    return static_cast<size_t>(major) * minor_.size() + static_cast<size_t>(minor);
  }
  void AddAt(size_t place, double amount) {
    values_[place].fetch_add(amount, std::memory_order_relaxed);
  }
  void SetAt(size_t place, double value) { values_[place].store(value, std::memory_order_relaxed); }
  void ObserveAt(size_t place, double value);

 private:
  const Kind kind_;
  const MetricName name_;
  const LabelSets major_;
  const LabelSets minor_;
  const std::span<const double> bounds_;
  std::vector<std::atomic<double>> values_;
  std::vector<std::atomic<uint64_t>> counts_;  // of histograms, bucket by bucket of each place
};

// LabelSets({{}}) is one series without labels.
class Counters final : public MetricFamily {
 public:
  Counters(MetricSet& set, const MetricName& name, LabelSets major = {{}}, LabelSets minor = {{}})
      : MetricFamily(
            set, name,
            {.kind = Kind::kCounter, .major = std::move(major), .minor = std::move(minor)}) {}

  template <typename... Places>
  void Increment(Places... places) {
    AddAt(PlaceOf(places...), 1);
  }
  template <typename... Places>
  void Add(double amount, Places... places) {
    AddAt(PlaceOf(places...), amount);
  }
};

class Gauges final : public MetricFamily {
 public:
  Gauges(MetricSet& set, const MetricName& name, LabelSets labels = {{}})
      : MetricFamily(set, name, {.kind = Kind::kGauge, .major = std::move(labels)}) {}

  template <typename Number, typename... Places>
  void Set(Number value, Places... places) {
    SetAt(PlaceOf(places...), static_cast<double>(value));
  }
  template <typename... Places>
  void Add(double amount, Places... places) {
    AddAt(PlaceOf(places...), amount);
  }
};

// `bounds` of the buckets, ascending; they outlive it.
class Histograms final : public MetricFamily {
 public:
  Histograms(MetricSet& set, const MetricName& name, std::span<const double> bounds,
             LabelSets labels = {{}})
      : MetricFamily(set, name,
                     {.kind = Kind::kHistogram, .major = std::move(labels), .bounds = bounds}) {}

  template <typename... Places>
  void Observe(double value, Places... places) {
    ObserveAt(PlaceOf(places...), value);
  }
  template <typename... Places>
  void Observe(absl::Duration duration, Places... places) {
    ObserveAt(PlaceOf(places...), absl::ToDoubleSeconds(duration));
  }
};

}  // namespace crossmesh
