#pragma once

#include "planner/pipeline/profile.h"
#include "planner/pipeline/schedule.h"

#include <span>

#include <absl/status/statusor.h>

namespace crossmesh {

// DualPipe (DeepSeek-V3, arXiv 2412.19437): microbatches go through the ranks in both directions at
// once, half of them each way, so that every rank has two stages, and twice the parameters. The
// first `ranks` stages are on the ranks in order; stage ranks + i, the i-th of the other direction,
// is on rank ranks - 1 - i. Microbatch m of the schedule is one microbatch at the first stages and
// another one at the others.
//
// A forward op and the whole backward op after it are fused as published where their stages are one
// of `pairs`, which are in ascending order; where not, they take turns.
//
// InvalidArgument: an odd number of ranks or microbatches, or fewer microbatches than twice the
// ranks.
absl::StatusOr<Schedule> MakeDualPipe(int32_t ranks, int32_t microbatches,
                                      std::span<const PairProfile> pairs = {});

// DualPipeV ("cut in half"): the same on half the ranks, whose two stages are placed as VRank says.
// InvalidArgument with no ranks, or fewer microbatches than twice the ranks.
absl::StatusOr<Schedule> MakeDualPipeV(int32_t ranks, int32_t microbatches,
                                       std::span<const PairProfile> pairs = {});

}  // namespace crossmesh
