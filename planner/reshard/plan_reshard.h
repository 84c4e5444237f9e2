#pragma once

#include "common/base/cancel_check.h"
#include "common/mesh/topology.h"
#include "common/plan/plan.h"
#include "common/plan/tensor_table.h"
#include "common/reshard/redistribution_inputs.h"
#include "planner/reshard/strategy.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// What moves over a network at the same time as a transfer.
enum class Beside : uint8_t {
  kNothing,
  kInstances,  // further ones of the transfer itself, as in a course
  kTransfers,
};

// All that a plan between meshes is a function of.
struct ReshardRequest {
  std::shared_ptr<const TensorTable> tensors;
  Topology topology;
  Strategy strategy = Strategy::kRelay;
  uint64_t seed = 0;  // of strategies that draw
  // The size of the largest chunk. 0: a 256th of what one host receives, from 64 KiB to 1 MiB.
  int64_t chunk_bytes = 0;
  // The part of every port's rate that the plan may use, above 0 to 1. Bound and prediction are for
  // that much, and workers keep to it.
  double nic_share = 1;
  // Keeps strategy relay from broadcasting in groups that are predicted to be faster that way.
  bool no_broadcasts = false;
  // With nothing beside it strategy relay may keep streams to an even pace; beside transfers it
  // keeps off rings of hosts: each host sends its own bytes to all others.
  Beside beside = Beside::kNothing;
  // Keeps strategy redistribute from NCCL's collectives, likewise.
  bool no_collectives = false;
  // Between GPUs strategy relay gives way to NCCL M2N where that is predicted to take less time,
  // unless there is a reason not to: this one, in words. Empty: there is none.
  std::string no_m2n = "strategy relay is asked for";
  // Of a step of a course that joins GPUs and host memory: the GPUs that exchange nothing with
  // other devices (common/plan/media.h), which the step's plan keeps to. Nothing: the planner
  // chooses.
  std::optional<std::vector<DeviceId>> over_gpus = std::nullopt;
  // From host to host by name: what is sent over none of them where there is another way, between
  // devices in host memory.
  std::set<std::pair<std::string, std::string>> failed_links = {};
  BindingMode binding = BindingMode::kShadow;
  bool shared_storage = false;
  // Of strategy redistribute, for which the proof's limit decides what may lie between steps; 0: no
  // limit.
  int64_t device_bytes_max = 0;
  RedistributionInputs redistribution = {};
};

// The plan that brings every tensor of the table from its source to its destination tiles: devices
// that need what they hold copy, all others get it by the strategy's routes. Its figures state the
// bound, the predicted time and the bytes. Not proven yet: that is Prove's part. Pure: equal
// requests give equal plans.
//
// InvalidArgument: strategy redistribute, which PlanRequest plans; chunk_bytes is not a multiple of
// Plan::kLeafBytes, or above Plan::kChunkBytesMax; nic_share is out of range; strategy m2n where a
// device is no GPU or a tensor is none that M2N can move; what Slicing::Create finds.
// ResourceExhausted: the strategy takes more relays or hops than a plan may have, which are counted
// before they are made, or a longer search than it allows itself. Cost: that of the slicing, of the
// bound and of the strategy; otherwise linear in classes and hops. Cancelled when `cancelled` says
// so, which is asked between the steps and inside those that search.
absl::StatusOr<Plan> PlanReshard(const ReshardRequest& request,
                                 CancelCheck cancelled = NeverCancelled);

}  // namespace crossmesh
