#pragma once

#include "common/plan/plan.h"
#include "common/plan/testing/random_source.h"
#include "worker/gpu/compiler/testing/compiled_parts.h"

#include <cstdint>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Random tensors, layouts and topology, planned by one of the strategies; now and then relays of
// several chunks and leaves.
Plan RandomPlanned(RandomSource& random);
// The same tensors with random routes, whose hops follow each other after any number of periods.
Plan RandomDrawn(RandomSource& random);
// One or the other, of tensors of which some are sent as F8_E4M3, with their scales.
Plan RandomQuantized(RandomSource& random);

// Matrices in `shards`, each for so many devices of a group: of one that holds a shard for all
// others of its group, or of all of which each holds a part of it. Host i has one device of each
// group, and some of the groups broadcast.
struct BroadcastShape {
  int64_t shards = 2;
  int64_t members = 4;
};
Plan RandomBroadcast(RandomSource& random, const BroadcastShape& shape);

// Tensors that NCCL M2N moves from 1 to 4 devices of one host to 1 to 4 of another, cut in each way
// that it can be asked for.
Plan RandomM2n(RandomSource& random);

// The first of some plans that has no more devices than that.
using MakePlan = Plan (*)(RandomSource& random);
Plan RandomOfSize(int64_t devices_max, MakePlan make_plan, RandomSource& random);

// Runs so many cases, of seeds from one on, or those that CROSSMESH_SEED and CROSSMESH_CASES
// choose, until one fails; its status says how to run it again.
absl::Status RunRandomCases(uint64_t seed, int64_t cases,
                            absl::FunctionRef<absl::Status(RandomSource& random)> run);

// The compiled parts of all devices, with little staging most of the time: the first size, of some
// drawn, that is enough.
absl::StatusOr<CompiledParts> RandomCompiledParts(RandomSource& random, const Plan& plan);

}  // namespace crossmesh
