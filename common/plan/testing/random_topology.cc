#include "common/plan/testing/random_topology.h"

#include "common/base/check.h"

#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {

Topology RandomTopology(RandomSource& random, const TensorTable& tensors,
                        const RandomTopologyOptions& options) {
  const auto rate = [&] { return random.Between(1, options.rates_max) * options.bytes_per_second; };
  const auto latency_ns = [&] {
    return options.latency_ns_max == 0 ? 0 : random.Between(0, options.latency_ns_max);
  };
  std::vector<Host> hosts;
  std::vector<Rack> racks;
  for (const std::string& name : tensors.hosts()) {
    if (options.undescribed && random.OneIn(4)) continue;
    Host& host = hosts.emplace_back(Host{.name = name});
    for (int64_t nic = random.Between(1, options.nics_max); nic > 0; --nic) {
      const int64_t out = rate();
      const int64_t in = random.OneIn(3) ? rate() : out;
      const int64_t out_latency_ns = latency_ns(), in_latency_ns = latency_ns();
      host.nics.push_back({absl::StrCat("nic", nic), out, in, out_latency_ns, in_latency_ns});
    }
    if (!options.racks || random.OneIn(6)) continue;
    if (racks.empty() || random.OneIn(3)) {
      racks.push_back({.name = absl::StrCat("r", racks.size()),
                       .up_bytes_per_second = rate(),
                       .down_bytes_per_second = rate()});
    }
    racks[random.Below(std::ssize(racks))].hosts.push_back(name);
  }
  absl::StatusOr<Topology> topology =
      Topology::Create(std::move(hosts), std::move(racks),
                       /*assumed_bytes_per_second=*/100 * options.bytes_per_second);
  CHECK_OK(topology);
  return *std::move(topology);
}

}  // namespace crossmesh
