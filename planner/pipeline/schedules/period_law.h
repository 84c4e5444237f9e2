// The law of alternating orders: how long a microbatch takes in the steady state of a window order,
// and which windows a wished period needs. Between stages i and j a microbatch goes there and back,
// which takes R(i, j): all forward and backward ops from i to j and the transfers between them.
// While one does, stage i can be at most w_i - w_j microbatches ahead, so that
//
//   period = max over i <= j of R(i, j) / (w_i - w_j + 1).
//
// In the split form, gradients of the weights come right after those of the input: R(i, j) has the
// latter's times, and stage i's gradient of the weights once.

#pragma once

#include "planner/pipeline/profile.h"

#include <cstdint>
#include <span>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// The period of windows, one for each stage of a chain. InvalidArgument unless the profile is a
// chain of stages on ranks of their own, with as many windows, each at least as large as the next.
// Cost: stages^2.
absl::StatusOr<double> PeriodOfWindows(const PipelineProfile& chain, BackwardForm form,
                                       std::span<const int32_t> windows);

// The smallest windows, stage by stage, whose period is at most `period`: 1 for the last stage, and
// for the others as many more than the next stage has as their round trips take periods. So an edge
// whose transfers cost nothing adds 1, one that takes up to a period there and back adds 2.
// InvalidArgument as above, and when a stage's own work takes longer than the period. Cost:
// stages^2.
absl::StatusOr<std::vector<int32_t>> SmallestWindows(const PipelineProfile& chain,
                                                     BackwardForm form, double period);

// The smallest windows of the shortest period for which none is larger than that of `windows_max`,
// one for each stage, at least 1. To a millionth of the period. InvalidArgument as above.
absl::StatusOr<std::vector<int32_t>> FastestWindows(const PipelineProfile& chain, BackwardForm form,
                                                    std::span<const int32_t> windows_max);

// The longest work of a stage for one microbatch: no period is shorter.
double LongestStageSeconds(const PipelineProfile& profile);

// InvalidArgument unless stage i is alone on rank i and edges lead from each to the next.
absl::Status CheckChain(const PipelineProfile& profile);

}  // namespace crossmesh
