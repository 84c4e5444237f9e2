#include "planner/reshard/host_chunks.h"

#include "common/plan/plan.h"
#include "planner/network/nic_lanes.h"
#include "planner/network/nic_ports.h"

#include <algorithm>
#include <vector>

namespace crossmesh {
namespace {

// How many chunks the busiest receiver gets, as long as their size is within limits.
constexpr int64_t kPeriods = 256;
constexpr int64_t kPeriodsMax = int64_t{1} << 20;

}  // namespace

int64_t HostChunkBytes(const Demands& demands, const HostNetwork& network) {
  const std::vector<int64_t> received = BytesIn(demands, network.hosts.size());
  const int64_t most = received.empty() ? 0 : *std::ranges::max_element(received);
  return std::clamp(Plan::LeavesOf(most / kPeriods) * Plan::kLeafBytes, Plan::kLeafBytes,
                    Plan::kChunkBytesDefault);
}

int64_t ShareOfNic(int64_t chunk_bytes, const HostNetwork& network, const Topology& topology) {
  const int64_t lanes = LanesOfOneNic(NicPorts(network, topology));
  return std::max(Plan::kLeafBytes, chunk_bytes / lanes / Plan::kLeafBytes * Plan::kLeafBytes);
}

int32_t PeriodsOf(const BusiestPort& busiest, int64_t period_bytes) {
  const int64_t periods = busiest.bytes / period_bytes;
  return static_cast<int32_t>(std::clamp<int64_t>(periods, 1, kPeriodsMax));
}

int64_t LeastNanoseconds(bool keeps_pace, double bound_seconds) {
  return keeps_pace ? static_cast<int64_t>(bound_seconds * 1e9) : 0;
}

}  // namespace crossmesh
