#pragma once

#include "common/plan/step_collective.h"
#include "planner/network/gpu_network.h"

#include <cstdint>
#include <vector>

namespace crossmesh {

// A collective of groups of devices of a network, all at once, of several tensors in one group of
// calls.
struct RingCollective {
  GroupedCollective collective;
  int64_t piece_bytes = 0;  // of a device, of all tensors
  int64_t calls = 1;

  // In which every rank hands a piece on; an all-reduce has as many again for its second half.
  int64_t passes() const {
    const bool is_twice = collective.kind == StepCollective::kAllReduce;
    return (is_twice ? 2 : 1) * (collective.ranks() - 1);
  }
};

// What rings load the network with: of each host, how many of them enter and leave it.
std::vector<int32_t> RingsOfHosts(const GpuNetwork& network, const GroupedCollective& collective);

// How long NCCL is predicted to take for it, as a ring of n ranks in each group.
//
//   seconds = what a step and its calls cost + passes x (b + latency) + passes x piece / rate
//
// b is what a rank takes to begin to pass something on (gpu_costs.h). A group's ring enters and
// leaves each of several hosts, and NCCL makes rings enough for the NICs of all its GPUs there. So
// the rate is that of these together, of the slowest group and host, or of a rack's uplink, which
// all groups that pass it share, or of a GPU's links, or of the channels of a kernel, whichever is
// least.
//
// An all-gather is hashed, one pass over the own piece before it and one over the others after it,
// which kernels do at the rate at which they copy. Cost: linear in devices.
double PredictRing(const GpuNetwork& network, const RingCollective& collective);

}  // namespace crossmesh
