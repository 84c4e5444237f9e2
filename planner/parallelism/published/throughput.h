// Arithmetic of published results.

#pragma once

#include "planner/parallelism/ring_law.h"
#include "planner/parallelism/transformer.h"

#include <cstdint>

namespace crossmesh {

constexpr double PercentOfPeak(double flops_per_second, int64_t devices, double peak) {
  return 100 * flops_per_second / (static_cast<double>(devices) * peak);
}

// Operations of a step as AxoNN's run script counts them, with everything computed twice:
// 96 B s L h^2 (1 + s / 6h + V / 16Lh).
double StepFlops(const Transformer& model, int64_t batch, int64_t sequence);

// NCCL's own tuning model of a ring (tuning.cc, mid 2026). Microseconds and bytes per microsecond
// would be odd units here: seconds and bytes per second.
struct NcclRing {
  CollectiveOp op = CollectiveOp::kAllReduce;
  int64_t ranks = 1;
  int64_t nodes = 1;
  double base_seconds = 0;
  double hop_seconds = 0;  // inside a node
  double network_hop_seconds = 0;
  double network_overhead_seconds = 0;
  double channels = 1;
  double channel_bytes_per_second = 1;
  // What latency takes longer, of rings by the simple protocol over several nodes.
  double plateau_factor = 1;

  double LatencySeconds() const;
  double AlgorithmBytesPerSecond() const;
  double Seconds(double bytes) const {
    return plateau_factor * LatencySeconds() + bytes / AlgorithmBytesPerSecond();
  }
};

}  // namespace crossmesh
