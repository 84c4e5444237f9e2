#pragma once

#include "planner/pipeline/schedule.h"

#include <cstdint>
#include <span>

#include <absl/status/statusor.h>

namespace crossmesh {

// Sequence-split 1F1B (Seq1F1B, Sun et al., arXiv 2406.03488), for causal models: each microbatch's
// sequences are cut into parts of equal work, which follow one another like microbatches forward,
// and the other way round backward. Microbatch m of the schedule is part m % parts of microbatch m
// / parts. A part takes a share of the time and the memory, so the bubble and the memory of 1F1B
// shrink to nearly that share.
//
// The order of given windows, as a window order of whole sequences has them: stage i, alone on rank
// i, holds at most windows[i] + parts - 1 parts. InvalidArgument with a count below 1.
absl::StatusOr<Schedule> MakeSequenceSplit(std::span<const int32_t> windows, int32_t microbatches,
                                           int32_t parts);

// 1F1B's windows, as published.
absl::StatusOr<Schedule> MakeSequenceSplit(int32_t stages, int32_t microbatches, int32_t parts);

}  // namespace crossmesh
