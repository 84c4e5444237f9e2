// What of a plan and its simulated run is drawn: hosts with their NICs, routes, colours.

#pragma once

#include "common/mesh/topology.h"
#include "common/plan/plan.h"
#include "planner/network/host_network.h"
#include "planner/network/nic_ports.h"
#include "planner/network/simulator.h"

#include <cstdint>
#include <string>
#include <vector>

#include <absl/strings/string_view.h>

namespace crossmesh {

// A plan, the network it is for, and its run there, with its transfers. References must outlive
// the use.
struct SimulatedPlan {
  const Plan& plan;
  const Topology& topology;
  const SimulatedTimeline& run;
};

// Bytes of one colour from NIC to NIC.
struct DrawnRoute {
  HostRank from = 0;
  HostRank to = 0;
  int32_t out_port = 0;  // index into SimulatedTimeline::ports
  int32_t in_port = 0;
  int32_t colour = 0;
  double bytes = 0;
};

struct DrawnHost {
  HostRank host = 0;
  int32_t layer = 0;  // 0: the root of some route; else hops from a root, the least of all routes
  double bytes = 0;   // out and in
};

struct LegendColour {
  std::string name;  // the root's host, or "N others"
  absl::string_view colour;
};

// Colours stand for the hosts whose bytes these are: the roots of relays, by the bytes sent of
// theirs. Hosts are those that bytes leave or enter. Cost: transfers and hops.
class DrawnPlan {
 public:
  explicit DrawnPlan(const SimulatedPlan& simulated);

  const SimulatedPlan& simulated() const { return simulated_; }
  const HostNetwork& network() const { return network_; }
  const NicPorts& ports() const { return ports_; }
  // By layer, rack and rank.
  const std::vector<DrawnHost>& hosts() const { return hosts_; }
  // Most bytes first.
  const std::vector<DrawnRoute>& routes() const { return routes_; }
  const std::vector<LegendColour>& legend() const { return legend_; }

  // Of a relay's bytes: an index into legend().
  int32_t ColourOf(int64_t relay) const { return colour_of_host_[RootOf(relay)]; }
  double TransferBytes(const SimulatedTransfer& transfer) const;
  // Part of the run that a port works, if always at its full rate.
  double UseOf(int32_t port) const;
  double seconds() const { return simulated_.run.seconds; }

 private:
  HostRank RootOf(int64_t relay) const;
  void ChooseColours();
  void AddRoutes();
  void AddHosts();
  std::vector<int32_t> Layers() const;

  const SimulatedPlan simulated_;
  const HostNetwork network_;
  const NicPorts ports_;
  std::vector<int32_t> colour_of_host_;
  std::vector<LegendColour> legend_;
  std::vector<DrawnRoute> routes_;
  std::vector<DrawnHost> hosts_;
};

}  // namespace crossmesh
