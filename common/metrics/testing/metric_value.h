#pragma once

#include "common/metrics/metric_family.h"
#include "common/metrics/metric_names.h"

#include <absl/strings/string_view.h>

namespace crossmesh {

// What was recorded under the name: the sum over its series, or over those of them that have the
// label value `label`. Of a histogram, what was observed, added up. -1 when there is no such
// series.
double ValueOf(const MetricSet& metrics, const MetricName& name, absl::string_view label = "");

}  // namespace crossmesh
