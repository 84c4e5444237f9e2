#include "planner/network/nic_lanes.h"

#include <algorithm>
#include <map>
#include <span>

namespace crossmesh {
namespace {

// Of a host's rate: less is a rounding error.
constexpr double kPartMin = 1e-12;

// Where each port ends, of 1.
std::vector<double> EndsOf(const NicPorts& ports, std::span<const int32_t> numbers) {
  std::vector<double> ends;
  double rate = 0;
  for (const int32_t port : numbers) {
    rate += ports.ports()[port].bytes_per_second;
    ends.push_back(rate);
  }
  for (double& end : ends) end /= rate;
  return ends;
}

// One host of each kind: with equal ports in this direction.
template <typename PortsOf>
std::vector<HostRank> KindsOf(const NicPorts& ports, PortsOf ports_of) {
  std::map<std::vector<double>, HostRank> kinds;
  for (HostRank host = 0; host < ports.hosts(); ++host) {
    kinds.emplace(EndsOf(ports, ports_of(host)), host);
  }
  std::vector<HostRank> hosts;
  for (const auto& [ends, host] : kinds) hosts.push_back(host);
  return hosts;
}

template <typename Port>
int64_t MostOfOne(const std::vector<NicLane>& lanes, Port port) {
  int64_t most = 0;
  for (const NicLane& lane : lanes) {
    most = std::max<int64_t>(most, std::ranges::count(lanes, lane.*port, port));
  }
  return most;
}

}  // namespace

std::vector<NicLane> LanesBetween(const NicPorts& ports, HostRank from, HostRank to) {
  const std::span<const int32_t> outs = ports.out(from), ins = ports.in(to);
  const std::vector<double> out_ends = EndsOf(ports, outs), in_ends = EndsOf(ports, ins);
  std::vector<NicLane> lanes;
  double begin = 0;
  // Both sides lie along the same line from 0 to 1, each port as long as its part of the rate; a
  // lane is where an out port and an in port overlap. So every port is full, with as few lanes as
  // possible.
  for (size_t out = 0, in = 0; out < outs.size() && in < ins.size();) {
    const double end = std::min(out_ends[out], in_ends[in]);
    if (end - begin > kPartMin) lanes.push_back({outs[out], ins[in], end - begin});
    begin = end;
    const bool out_ended = out_ends[out] <= end + kPartMin;
    const bool in_ended = in_ends[in] <= end + kPartMin;
    out += out_ended ? 1 : 0;
    in += in_ended ? 1 : 0;
  }
  return lanes;
}

int64_t LanesOfOneNic(const NicPorts& ports) {
  const auto froms = KindsOf(ports, [&ports](HostRank host) { return ports.out(host); });
  const auto tos = KindsOf(ports, [&ports](HostRank host) { return ports.in(host); });
  int64_t most = 1;
  for (const HostRank from : froms) {
    for (const HostRank to : tos) {
      const std::vector<NicLane> lanes = LanesBetween(ports, from, to);
      most = std::max(most, MostOfOne(lanes, &NicLane::out_port));
      most = std::max(most, MostOfOne(lanes, &NicLane::in_port));
    }
  }
  return most;
}

}  // namespace crossmesh
