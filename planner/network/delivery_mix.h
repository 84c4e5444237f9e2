#pragma once

#include "planner/network/cheapest_delivery.h"
#include "planner/network/demands.h"
#include "planner/network/fraction.h"
#include "planner/network/host_network.h"

#include <cstdint>
#include <vector>

namespace crossmesh {

// For every demand, which parts of its bytes go which way in the least time, with the proof that it
// is the least.
struct DeliveryMix {
  struct Part {
    double share = 0;  // of the demand's bytes; those of a demand add up to 1
    std::vector<HostHop> hops;
  };

  // A bound for any plan, exactly: what all bytes pay at the prices when each goes the cheapest
  // way, divided by the sum of price times rate.
  Fraction seconds;
  PortPrices prices;  // whole numbers
  // What the fullest port needs for the parts: as long, but for rounding errors, unless there was
  // no time to find all deliveries that help.
  double mixed_seconds = 0;
  // By demand; none for one holder and one receiver, whose only route is obvious. Empty when there
  // are too many ports, or no demand leaves a choice.
  std::vector<std::vector<Part>> parts;
};

inline constexpr int64_t kMixPlacesMax = int64_t{1} << 22;

// Mixes deliveries by the linear programme over all of them, whose columns come one by one
// (Dantzig and Wolfe 1960): prices of ports from those at hand, then for each demand the cheapest
// delivery at these prices, until none helps. The prices at the end prove the bound. The network
// must have racks; without them a flow says the same with less work (UplinkFlow). `known` is a
// bound of that problem, not 0.
//
// A mix has at most as many parts as there are demands and full ports. Cost: ports^2 for each
// delivery that helps, a few times as many as ports and demands; about a second at most, after
// which the mix may need longer than its prices say. Nothing is done with more than a thousand
// ports, or when the demands with a choice have more than kMixPlacesMax holders and receivers
// together, which take some ten bytes each and more.
DeliveryMix MixDeliveries(const Demands& demands, const HostNetwork& network,
                          const Fraction& known);

}  // namespace crossmesh
