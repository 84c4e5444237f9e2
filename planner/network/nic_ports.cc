#include "planner/network/nic_ports.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int32_t kUnlimited = -1;

}  // namespace

NicPorts::NicPorts(const HostNetwork& network, const Topology& topology)
    : rack_of_host_(network.rack_of_host) {
  const Host undescribed{.nics = {{.name = "nic",
                                   .out_bytes_per_second = topology.assumed_bytes_per_second(),
                                   .in_bytes_per_second = topology.assumed_bytes_per_second()}}};
  for (const std::string& name : network.hosts) {
    const Host* const found = topology.FindHost(name);
    std::vector<int32_t>& out = out_.emplace_back();
    std::vector<int32_t>& in = in_.emplace_back();
    for (const Nic& nic : (found == nullptr ? undescribed : *found).nics) {
      const std::string port = absl::StrCat(name, "/", nic.name);
      out.push_back(
          Add(PortPrice::Port::kHostOut, port, nic.out_bytes_per_second, nic.out_latency_ns));
      in.push_back(Add(PortPrice::Port::kHostIn, port, nic.in_bytes_per_second, nic.in_latency_ns));
    }
  }
  for (size_t rack = 0; rack < network.racks.size(); ++rack) {
    const std::string& name = network.racks[rack];
    const int64_t up = network.rack_rates.out[rack], down = network.rack_rates.in[rack];
    // Racks are unlimited in both directions or in none: only hosts without a rack have such.
    const bool unlimited = up == PortRates::kUnlimited;
    up_.push_back(unlimited ? kUnlimited : Add(PortPrice::Port::kRackUp, name, up));
    down_.push_back(unlimited ? kUnlimited : Add(PortPrice::Port::kRackDown, name, down));
  }
}

int32_t NicPorts::Add(PortPrice::Port kind, std::string name, int64_t bytes_per_second,
                      int64_t latency_ns) {
  ports_.push_back({.kind = kind,
                    .name = std::move(name),
                    .bytes_per_second = static_cast<double>(bytes_per_second),
                    .latency_seconds = static_cast<double>(latency_ns) * 1e-9});
  return static_cast<int32_t>(ports_.size()) - 1;
}

std::vector<int32_t> NicPorts::Path(HostRank from, int32_t out_port, HostRank to,
                                    int32_t in_port) const {
  std::vector<int32_t> path = {out_port};
  if (!rack_of_host_.empty() && rack_of_host_[from] != rack_of_host_[to]) {
    const int32_t up = up_[rack_of_host_[from]], down = down_[rack_of_host_[to]];
    if (up != kUnlimited) path.push_back(up);
    if (down != kUnlimited) path.push_back(down);
  }
  path.push_back(in_port);
  return path;
}

}  // namespace crossmesh
