#include "planner/reshard/even_pace.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace crossmesh {
namespace {

// Of the time of the port that is busy longest: a port that idles for longer has time to spare.
constexpr double kBusyShare = 0.98;

// Ports through which nothing passes count for nothing.
bool AreBusyFor(double seconds, const std::vector<int64_t>& bytes,
                const std::vector<int64_t>& rates) {
  for (size_t host = 0; host < bytes.size(); ++host) {
    if (bytes[host] == 0) continue;
    if (rates[host] == PortRates::kUnlimited) return false;
    if (static_cast<double>(bytes[host]) <
        kBusyShare * seconds * static_cast<double>(rates[host])) {
      return false;
    }
  }
  return true;
}

bool DoStreamsMeet(const TensorTable& tensors, const Routes& routes) {
  std::set<std::pair<HostRank, HostRank>> streams;  // to one host, from another
  for (const Hop& hop : routes.hops) {
    const HostRank from = tensors.host_of(hop.from), to = tensors.host_of(hop.to);
    if (from != to) streams.emplace(to, from);
  }
  const auto same_receiver = [](const auto& a, const auto& b) { return a.first == b.first; };
  return std::ranges::adjacent_find(streams, same_receiver) != streams.end();
}

}  // namespace

bool WantsEvenPace(const TensorTable& tensors, const HostNetwork& network, const Routes& routes,
                   const PortLoad& load) {
  if (network.assumed_rates || network.has_racks() || load.depth != 1) return false;
  const double seconds = FindBusiestPort(load, network).seconds;
  return AreBusyFor(seconds, load.host_out, network.host_rates.out) &&
         AreBusyFor(seconds, load.host_in, network.host_rates.in) && DoStreamsMeet(tensors, routes);
}

}  // namespace crossmesh
