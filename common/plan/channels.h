#pragma once

#include "common/plan/indices.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace crossmesh {

class Plan;

struct Channels {
  std::vector<std::pair<DeviceRank, DeviceRank>> ends;  // (from, to), ascending
  std::vector<ChannelIndex> of_hop;                     // by index into Plan::hops()
};

// Cost: linear in hops and devices.
Channels ChannelsOf(const Plan& plan);

}  // namespace crossmesh
