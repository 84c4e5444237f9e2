#pragma once

#include "common/plan/plan.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace crossmesh {

// Number of a channel in the whole plan: its place among all (from, to) pairs, sorted.
using ChannelIndex = int32_t;

struct Channels {
  std::vector<std::pair<DeviceRank, DeviceRank>> ends;  // (from, to), ascending
  std::vector<ChannelIndex> of_hop;                     // by index into Plan::hops()
};

// Cost: linear in hops and devices.
Channels ChannelsOf(const Plan& plan);

}  // namespace crossmesh
