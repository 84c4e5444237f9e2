#pragma once

#include "planner/network/demands.h"
#include "planner/network/uplink_flow.h"

namespace crossmesh {

// Where each of at least three hosts has as many bytes for all others, and is to send its own to
// each of them: lets each host hand all bytes on to the next one instead, round a ring, so that
// every port hears from one host alone. Streams that meet at a port lose what recovering from
// losses takes. No host sends more than before. Cost: linear in holders and receivers, sorted.
void CloseRings(const Demands& demands, SendShares& shares);

}  // namespace crossmesh
