#pragma once

#include "common/plan/plan.h"
#include "common/plan/worker_part.h"

#include <absl/status/status.h>

namespace crossmesh {

// Proves of the steps of courses for which there is a collective (step_collective.h) what their
// layouts do not say: no destination is received into the storage that is read; and in an
// all-gather each device is the root of one relay, all as long as each other and due at the same
// time, that goes to each of the others of its group by itself, since ranks tell each other equal
// lists of hashes, which are not passed on. Internal, naming course, step and relay. Cost: linear
// in hops.
absl::Status ProveCollectives(const Plan& plan);
// The same of a worker's part.
absl::Status ProveCollectives(const WorkerPart& part);

}  // namespace crossmesh
