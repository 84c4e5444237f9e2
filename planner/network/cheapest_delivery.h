#pragma once

#include "planner/network/demands.h"
#include "planner/network/host_network.h"

#include <cstdint>
#include <vector>

namespace crossmesh {

// One hop of a route between hosts, in the tree of `root`, a holder host.
struct HostHop {
  HostRank root = 0;
  HostRank from = 0;
  HostRank to = 0;
  friend bool operator==(const HostHop&, const HostHop&) = default;
};

// What a byte pays at each port that it passes, by place; none is negative.
struct PortPrices {
  std::vector<double> host_out;
  std::vector<double> host_in;
  std::vector<double> rack_up;
  std::vector<double> rack_down;
};

// Finds the cheapest way to bring a byte of a demand to all of its receivers.
//
// The price of a hop is a sum of ports: from u to v out(u) + in(v), and up(rack of u) + down(rack
// of v) where these differ. So only one receiver of a rack ever needs to send, the one with the
// least price, and the others take the byte where it is cheapest. Between racks this leaves one
// choice for each rack, which makes no circle unless the receiver that sends out of its rack at the
// least price of all is itself fed from another rack; then one more host has its byte from a
// holder.
class DeliverySearch {
 public:
  // The network must have racks. Arguments are not kept.
  DeliverySearch(const Demands& demands, const Demand& demand, const HostNetwork& network);

  // The least price of a delivery, and its hops: every receiver once, those of a root together,
  // parents first. Ties go by rack and rank. Cost: linear in the hosts of the demand.
  double Cheapest(const PortPrices& prices, std::vector<HostHop>& hops) const;

 private:
  struct Rack {
    int32_t number = 0;
    std::vector<HostRank> holders;
    std::vector<HostRank> receivers;
  };

  std::vector<Rack> racks_;  // ascending
};

}  // namespace crossmesh
