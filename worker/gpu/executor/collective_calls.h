#pragma once

#include "worker/gpu/communicators/communicator.h"
#include "worker/gpu/executor/gpu_legs.h"

#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// What NCCL is called with for a leg for which there is a collective, a call for each tensor in the
// order of its table; nothing for other legs. What is added goes to the leg's destination tiles.
// What CheckTile refuses; InvalidArgument, naming the device, where elements that are added would
// not lie at multiples of their size. Cost: linear in tensors.
absl::StatusOr<std::vector<Collective>> CollectiveCallsOf(const GpuLeg& leg);

}  // namespace crossmesh
