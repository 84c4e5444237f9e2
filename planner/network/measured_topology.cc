#include "planner/network/measured_topology.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Of both NICs, there and back.
constexpr int64_t kRoundTripNsMax = 2 * Topology::kLatencyNsMax;

struct Best {
  int64_t bytes_per_second = 0;
  int64_t round_trip_ns = std::numeric_limits<int64_t>::max();

  void Take(const LinkFigures& figures) {
    bytes_per_second = std::max(bytes_per_second, figures.bytes_per_second);
    round_trip_ns = std::min(round_trip_ns, figures.round_trip_ns);
  }
};

absl::Status NotMeasured(const ProbePort& port, absl::string_view direction) {
  return absl::InvalidArgumentError(
      absl::StrCat(ToString(port), ": no link of it could be measured for what it ", direction));
}

}  // namespace

absl::Status CheckFigures(std::span<const ProbePort> ports, const LinkFigures& figures) {
  const std::string link = absl::StrCat("link ", ToString(ports[figures.link.from]), " to ",
                                        ToString(ports[figures.link.to]));
  if (figures.bytes_per_second < 1 || figures.bytes_per_second > Topology::kNicBytesPerSecondMax) {
    return absl::OutOfRangeError(
        absl::StrCat(link, ": expected a rate of 1 to ", int64_t{Topology::kNicBytesPerSecondMax},
                     " bytes/s (10 Tbit/s), measured ", figures.bytes_per_second));
  }
  if (figures.round_trip_ns < 0 || figures.round_trip_ns > kRoundTripNsMax) {
    return absl::OutOfRangeError(absl::StrCat(link, ": expected 0 to ", int64_t{kRoundTripNsMax},
                                              " ns there and back, measured ",
                                              figures.round_trip_ns));
  }
  return absl::OkStatus();
}

absl::StatusOr<Topology> MeasuredTopology(std::span<const ProbePort> ports,
                                          std::span<const LinkFigures> measured,
                                          const Topology& before) {
  std::vector<Best> out(ports.size()), in(ports.size());
  for (const LinkFigures& figures : measured) {
    RETURN_IF_ERROR(CheckFigures(ports, figures));
    out[figures.link.from].Take(figures);
    in[figures.link.to].Take(figures);
  }
  std::vector<Host> hosts;
  for (const std::string& name : HostsWithoutPort(ports, before)) {
    hosts.push_back(*before.FindHost(name));
  }
  for (size_t i = 0; i < ports.size(); ++i) {
    if (out[i].bytes_per_second == 0) return NotMeasured(ports[i], "sends");
    if (in[i].bytes_per_second == 0) return NotMeasured(ports[i], "receives");
    if (i == 0 || ports[i].host != ports[i - 1].host) {
      const Host* described = before.FindHost(ports[i].host);
      hosts.push_back(
          {.name = ports[i].host,
           .nics = {},
           .gpus = described == nullptr ? std::vector<HostGpu>() : described->gpus,
           .local_bytes_per_second = described == nullptr ? 0 : described->local_bytes_per_second});
    }
    hosts.back().nics.push_back({.name = ports[i].nic,
                                 .out_bytes_per_second = out[i].bytes_per_second,
                                 .in_bytes_per_second = in[i].bytes_per_second,
                                 // A quarter: half of the way there, which two NICs share.
                                 .out_latency_ns = out[i].round_trip_ns / 4,
                                 .in_latency_ns = in[i].round_trip_ns / 4});
  }
  for (Host& host : hosts) {
    std::erase_if(host.gpus, [&host](const HostGpu& gpu) {
      return std::ranges::find(host.nics, gpu.nic, &Nic::name) == host.nics.end();
    });
  }
  return Topology::Create(std::move(hosts), before.racks(), before.assumed_bytes_per_second(),
                          before.gpu_costs());
}

std::vector<std::string> HostsWithoutPort(std::span<const ProbePort> ports,
                                          const Topology& before) {
  std::vector<std::string> hosts;
  for (const Host& host : before.hosts()) {
    if (!std::ranges::binary_search(ports, host.name, {}, &ProbePort::host)) {
      hosts.push_back(host.name);
    }
  }
  return hosts;
}

}  // namespace crossmesh
