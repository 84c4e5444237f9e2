#pragma once

#include "common/plan/plan.h"
#include "common/plan/worker_part.h"

#include <absl/status/status.h>

namespace crossmesh {

// Proves that NCCL M2N, where a plan has it, does what the plan promises: it can be asked to move
// every tensor (m2n_transfer.h), nothing is copied inside a device, and every relay goes from its
// root to each receiver by itself, since hashes are not passed on. Internal, naming the tensor, the
// relay or the device. Cost: linear in hops, and in slots for each group of tensors.
absl::Status ProveM2n(const Plan& plan);
// The same of a worker's part.
absl::Status ProveM2n(const WorkerPart& part);

}  // namespace crossmesh
