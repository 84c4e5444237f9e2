#pragma once

#include "common/mesh/topology.h"
#include "planner/network/probe_schedule.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// What a probe of a link found.
struct LinkFigures {
  ProbeLink link;
  int64_t received_bytes = 0;
  int64_t bytes_per_second = 0;
  int64_t round_trip_ns = 0;
};

// OutOfRange, naming the link: a rate below 1 byte/s or beyond 10 Tbit/s, a time there and back
// below 0 or beyond 2 s.
absl::Status CheckFigures(std::span<const ProbePort> ports, const LinkFigures& figures);

// The description that follows from probes. Of a NIC, per direction: the best rate and half of the
// least one-way latency of its links, the other half being its partner's. Local rates, racks, the
// assumed rate, costs of GPUs and hosts without a port stay as they are in `before`; other NICs of
// hosts that have ports are not in use, and go, with the GPUs that have them. InvalidArgument: a
// NIC was not measured in both directions, which names it; what Topology::Create refuses; what
// CheckFigures finds.
absl::StatusOr<Topology> MeasuredTopology(std::span<const ProbePort> ports,
                                          std::span<const LinkFigures> measured,
                                          const Topology& before);

// The hosts of `before` that no port is of, in its order.
std::vector<std::string> HostsWithoutPort(std::span<const ProbePort> ports, const Topology& before);

}  // namespace crossmesh
