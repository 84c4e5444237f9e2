#pragma once

#include "planner/pipeline/schedule.h"

#include <absl/status/statusor.h>

namespace crossmesh {

struct InterleavedCounts {
  int32_t ranks = 0;
  int32_t chunks = 0;  // stages of a rank
  int32_t microbatches = 0;
  // Consecutive microbatches that a chunk takes before the next chunk has its turn. 0: PyTorch's,
  // as many as make rounds of at least `ranks`.
  int32_t group = 0;
};

// Interleaved 1F1B (Narayanan et al., arXiv 2104.04473), depth first: ranks have several stages,
// placed as LoopedRank says, and take turns among them, a group of microbatches at a time. The
// bubble is that of 1F1B over the chunks, for as many times its transfers.
//
// InvalidArgument: a count below 1; groups that do not divide the microbatches, or, with more than
// one group, are smaller than the ranks.
absl::StatusOr<Schedule> MakeInterleaved(const InterleavedCounts& counts);

// The same placement and groups by the rule of ZB-H1, as PyTorch has it (interleaved zero bubble):
// half as many ops lead, backward ops are in two, and on rank r the gradients of the weights begin
// r gradients of the input later, so that all ranks hold about as much. InvalidArgument as
// MakeInterleaved.
absl::StatusOr<Schedule> MakeInterleavedZeroBubble(const InterleavedCounts& counts);

}  // namespace crossmesh
