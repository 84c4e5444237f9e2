#pragma once

#include <compare>
#include <span>
#include <string>
#include <vector>

namespace crossmesh {

// A NIC that can be probed.
struct ProbePort {
  std::string host;
  std::string nic;
  friend auto operator<=>(const ProbePort&, const ProbePort&) = default;
};
// "node-a/eth0".
std::string ToString(const ProbePort& port);

// From one NIC to another, of another host; indices into the ports.
struct ProbeLink {
  int from = 0;
  int to = 0;
  friend auto operator<=>(const ProbeLink&, const ProbeLink&) = default;
};

// Which host probes which, and when: rounds in which every host sends on at most one link and
// receives on at most one, so that a link has its hosts' ports to itself. Every NIC sends to two
// others and receives from two others, where there are that many: NICs of two other hosts if
// possible, and of its own name there, since such NICs are likely to reach each other; else of the
// one other host.
//
// `ports` ascend and are unique. Fewer than two hosts give no rounds. Equal ports give equal
// rounds: two for each NIC that a host has, where all have as many. Cost: links times rounds.
//
// Example: a, b, c with one NIC each: first a>b b>c c>a, then a>c b>a c>b.
std::vector<std::vector<ProbeLink>> ScheduleProbes(std::span<const ProbePort> ports);

}  // namespace crossmesh
