#include "planner/network/routing.h"

#include "planner/network/pair_table.h"

#include <algorithm>

#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::Status CheckRelayCount(absl::string_view strategy, int64_t relays) {
  if (relays <= Plan::kRelaysMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("strategy ", strategy, " needs ", relays,
                                                   " relays or more; a plan has at most ",
                                                   Plan::kRelaysMax));
}

void AssignPlacesAndPeriods(const TensorTable& tensors, Routes& routes) {
  const int64_t devices = static_cast<int64_t>(tensors.devices().size());
  PairTable next_place(devices, devices, static_cast<int64_t>(routes.hops.size()));
  std::vector<int32_t> hops_from_root(devices);
  for (const Relay& relay : routes.relays) {
    hops_from_root[relay.root] = 0;
    for (int64_t h = relay.first_hop; h < relay.first_hop + relay.hop_count; ++h) {
      Hop& hop = routes.hops[h];
      hop.place = next_place.At(hop.from, hop.to)++;
      hop.period = hops_from_root[hop.from];
      hops_from_root[hop.to] = hop.period + 1;
    }
  }
}

std::span<const DeviceRank> DevicesOnHost(std::span<const DeviceRank> devices, HostRank host,
                                          const TensorTable& tensors) {
  // The usual case, with all devices on one host, needs no search.
  if (tensors.host_of(devices.front()) == host && tensors.host_of(devices.back()) == host) {
    return devices;
  }
  const auto host_of = [&tensors](DeviceRank device) { return tensors.host_of(device); };
  const auto found = std::ranges::equal_range(devices, host, {}, host_of);
  return {found.begin(), found.end()};
}

}  // namespace crossmesh
