#pragma once

#include "common/plan/plan.h"
#include "common/plan/worker_part.h"

#include <absl/status/status.h>

namespace crossmesh {

// A plan may join GPUs and host memory. What comes to some GPUs (Plan::Spec::over_gpus) then goes
// over a communicator, and what comes to all other devices by way of host memory. Each device is
// served by one medium, so that it is complete when that one says so; what it sends it may send by
// both.
//
// Of a plan with courses these are GPUs that exchange nothing with any other device in any step: a
// device then has all that it needs between steps in one memory, and each half of the plan goes
// through its steps by itself.
//
// Proves that no relay has receivers of both, so that the relays of a plan, and its channels, come
// apart into two halves; in courses, that no hop of a step is from one to the other; that there are
// no broadcast groups, no M2N and no collectives beside, which are for GPUs alone. Internal, naming
// the relay. Cost: linear in hops.
absl::Status ProveMedia(const Plan& plan);
// The same of a worker's part; of a half, that all in it is to devices which it serves.
absl::Status ProveMedia(const WorkerPart& part);

}  // namespace crossmesh
