#include "planner/parallelism/published/throughput.h"

#include <algorithm>

namespace crossmesh {

double StepFlops(const Transformer& model, int64_t batch, int64_t sequence) {
  const auto tokens = static_cast<double>(batch * sequence);
  const auto layers = static_cast<double>(model.layers);
  const auto hidden = static_cast<double>(model.hidden);
  return 96 * tokens * layers * hidden * hidden *
         (1 + static_cast<double>(sequence) / (6 * hidden) +
          static_cast<double>(model.vocabulary) / (16 * layers * hidden));
}

double NcclRing::LatencySeconds() const {
  const auto steps = static_cast<double>(RingSteps(op, ranks));
  const double crossings =
      static_cast<double>(nodes - 1) * (op == CollectiveOp::kAllReduce ? 2 : 1);
  return base_seconds + (steps - crossings) * std::max(hop_seconds, network_overhead_seconds) +
         crossings * network_hop_seconds;
}

double NcclRing::AlgorithmBytesPerSecond() const {
  return channels * channel_bytes_per_second * static_cast<double>(ranks) /
         static_cast<double>(RingSteps(op, ranks));
}

}  // namespace crossmesh
