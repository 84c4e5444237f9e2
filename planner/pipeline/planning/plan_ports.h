#pragma once

#include "common/mesh/topology.h"
#include "common/plan/plan.h"

#include <cstdint>
#include <string>
#include <vector>

namespace crossmesh {

// A port of the network and what passes it.
struct PortBytes {
  std::string port;  // "host a out", "host a in", "rack r up", "rack r down"
  int64_t bytes = 0;

  friend bool operator==(const PortBytes&, const PortBytes&) = default;
};

// Ports that a plan sends bytes through, all NICs of a host as one; of courses, in all of their
// steps and instances. Cost: linear in hops.
std::vector<PortBytes> PortsOf(const Plan& plan, const Topology& topology);

}  // namespace crossmesh
