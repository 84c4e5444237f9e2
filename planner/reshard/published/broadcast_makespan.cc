#include "planner/reshard/published/broadcast_makespan.h"

#include <algorithm>

namespace crossmesh {
namespace {

// When each port is free again.
class Ports {
 public:
  explicit Ports(const HostNetwork& network)
      : network_(network), out_(network.hosts.size()), in_(network.hosts.size()) {}

  // Returns the end of the broadcast.
  double Run(const Broadcast& broadcast) {
    double start = 0;
    int64_t rate = PortRates::kMax;
    ForEachPort(broadcast, [&](double& free, int64_t port_rate) {
      start = std::max(start, free);
      rate = std::min(rate, port_rate);
    });
    const double end = start + static_cast<double>(broadcast.bytes) / static_cast<double>(rate);
    ForEachPort(broadcast, [&](double& free, int64_t) { free = end; });
    return end;
  }

 private:
  template <typename Visit>
  void ForEachPort(const Broadcast& broadcast, Visit visit) {
    visit(out_[broadcast.sender], network_.fastest_nic.out[broadcast.sender]);
    for (size_t i = 0; i < broadcast.chain.size(); ++i) {
      const HostRank host = broadcast.chain[i];
      visit(in_[host], network_.fastest_nic.in[host]);
      if (i + 1 < broadcast.chain.size()) visit(out_[host], network_.fastest_nic.out[host]);
    }
  }

  const HostNetwork& network_;
  std::vector<double> out_;  // by HostRank
  std::vector<double> in_;
};

}  // namespace

double BroadcastMakespan(std::span<const Broadcast> broadcasts, const HostNetwork& network) {
  Ports ports(network);
  double end = 0;
  for (const Broadcast& broadcast : broadcasts) end = std::max(end, ports.Run(broadcast));
  return end;
}

}  // namespace crossmesh
