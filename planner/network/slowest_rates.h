#pragma once

#include "common/mesh/device.h"
#include "common/mesh/topology.h"

#include <cstdint>
#include <limits>
#include <span>

namespace crossmesh {

// What the slowest of some devices has when all communicate at once, each with its part of what it
// shares, and what a step and a message cost. Rates are of bytes per second, at least 1.
struct SlowestRates {
  int64_t nic = std::numeric_limits<int64_t>::max();     // between hosts
  int64_t inside = std::numeric_limits<int64_t>::max();  // to a device of its host
  double latency_seconds = 0;                            // of a message between hosts, beside
  double step_seconds = 0;
  double message_seconds = 0;
};

// Of GPUs alone, steps and messages cost what the description says; else what is assumed of host
// memory. Cost: the devices, and the NICs of their hosts.
SlowestRates SlowestRatesOf(std::span<const DeviceId> devices, const Topology& topology);

}  // namespace crossmesh
