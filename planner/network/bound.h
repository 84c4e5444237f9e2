#pragma once

#include "common/plan/plan.h"
#include "planner/network/delivery_mix.h"
#include "planner/network/demands.h"
#include "planner/network/fraction.h"
#include "planner/network/host_network.h"
#include "planner/network/uplink_flow.h"

#include <cstdint>
#include <vector>

namespace crossmesh {

// One term of the bound, in seconds, and the places whose ports prove it: no plan is faster,
// because these ports alone need that long.
struct BoundTerm {
  Fraction seconds;
  std::vector<int32_t> places;
};

// The least time of any plan in the fluid model in which only holders and receivers carry a class,
// exactly. Without racks it is reached. With racks the four terms can be too low; what hosts and
// racks need together is the mix's.
struct ExactBound {
  BoundTerm ingress;
  BoundTerm uplink;
  BoundTerm rack_ingress;
  BoundTerm rack_uplink;
  DeliveryMix mix;    // with racks, once it has been added (AddMix)
  int32_t flows = 0;  // maximum flows that it took

  Fraction terms() const;    // the greatest of the four
  Fraction seconds() const;  // and of the mix's
};

// The ingress term is max over hosts of bytes that it must receive / rate in. The uplink term is
// the least time in which a flow exists (UplinkFlow), found by following minimum cuts upwards from
// a lower bound: each cut X gives the next time, (what X must send) / (rate out of X); the last one
// is the term. The rack terms are the same one level up. Few flows are needed (1.3 in the mean).
ExactBound ComputeBound(const Demands& demands, const HostNetwork& network);

// For people and plans, with the proof as prices: 1 on every port of the term that decides, or
// those of the mix.
Bound ToBound(const ExactBound& exact, const HostNetwork& network);

// What each host sends of each demand such that no port needs longer than `bound`: first copies and
// further ones. Prefers short routes without racks, and with racks chains through one rack after
// the other. Cost: two flows at most.
SendShares ComputeSendShares(const Demands& demands, const HostNetwork& network,
                             const Fraction& bound);

}  // namespace crossmesh
