#include "common/metrics/testing/metric_value.h"

#include <algorithm>
#include <cstddef>

namespace crossmesh {

double ValueOf(const MetricSet& metrics, const MetricName& name, absl::string_view label) {
  double sum = 0;
  bool is_found = false;
  for (const MetricFamily* family : metrics.families()) {
    if (family->name().name != name.name) continue;
    for (size_t place = 0; place < family->size(); ++place) {
      const bool has_label = std::ranges::any_of(
          family->labels(place), [label](const auto& pair) { return pair.second == label; });
      if (!label.empty() && !has_label) continue;
      is_found = true;
      sum += family->value(place);
    }
  }
  return is_found ? sum : -1;
}

}  // namespace crossmesh
