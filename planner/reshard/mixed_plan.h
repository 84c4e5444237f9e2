#pragma once

#include "common/base/cancel_check.h"
#include "common/mesh/topology.h"
#include "common/plan/plan.h"
#include "planner/reshard/plan_reshard.h"

#include <memory>
#include <span>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// Of devices that are not all GPUs as the network describes them, those GPUs that can be served
// over a communicator of GPUs (media.h): some GPU holds all that they need and do not hold.
// Ascending. Cost: linear in the classes and the devices of their sets, if there are GPUs at all.
std::vector<DeviceRank> ReceiversOverGpus(const TensorTable& tensors, const Slicing& slicing,
                                          const Topology& topology);

// References must outlive the use.
struct MixedRequest {
  const ReshardRequest& request;
  const Topology& topology;  // what the plan may use of the request's
  const std::shared_ptr<const Slicing>& slicing;
  std::vector<DeviceRank> over_gpus;  // not empty
  // Of a course: over GPUs and by host memory nothing comes from a device of the other half, and
  // the plan does not name them, since its course's does.
  bool is_step = false;
  CancelCheck cancelled = NeverCancelled;
};

// The plan of a request that joins GPUs and host memory, in two halves: to `over_gpus` from GPUs
// and by the ports that GPUs have (gpu_relays.h), to all others as between hosts
// (relay_strategy.h), where a GPU counts as host memory. A class that both need is sent by both.
//
// Chunks and periods are one of what each half would choose, that with which both are predicted to
// take less time. The halves go side by side; since they may share ports, the prediction is that of
// one after the other. The bound is that of host memory alone, with all NICs of each host: no plan
// is faster.
//
// Errors as PlanReshard.
absl::StatusOr<Plan> PlanMixed(const MixedRequest& mixed);

// What a plan so made is predicted to take for what comes to `over_gpus`, of its whole prediction.
double SecondsOverGpus(const Plan& plan, std::span<const DeviceRank> over_gpus,
                       const Topology& topology);

}  // namespace crossmesh
