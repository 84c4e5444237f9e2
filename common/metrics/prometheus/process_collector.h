#pragma once

#include <vector>

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

namespace crossmesh {

// The process_* metrics of this process, read from /proc when they are asked for. What cannot be
// read is left out. Thread-safe.
class ProcessCollector final : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override;
};

}  // namespace crossmesh
