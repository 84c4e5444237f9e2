#pragma once

#include "planner/pipeline/schedule.h"

#include <cstdint>
#include <span>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// What a stage of a delayed order does.
struct DelayedStage {
  int32_t leading = 1;  // forward ops before the first gradient
  int32_t delay = 0;    // gradients of the input that may be ahead of those of the weights

  friend bool operator==(const DelayedStage&, const DelayedStage&) = default;
};

// The order of ZB-H1 and ZB-H2 with given numbers: stage i, alone on rank i, does its leading
// forward ops; then, over and over, one gradient of the input, the oldest of the weights if more
// than `delay` wait, and a forward op; then what is left of gradients of the weights. Holds leading
// + delay microbatches at most. InvalidArgument, naming `schedule`, with no stages or microbatches,
// nothing leading, or a negative delay.
absl::StatusOr<Schedule> MakeDelayedOrder(std::span<const DelayedStage> stages,
                                          int32_t microbatches,
                                          absl::string_view schedule = "delayed order");

// Zero Bubble (Qi et al., arXiv 2401.10241). ZB-H1 holds as much as 1F1B's first stage, on every
// stage. ZB-H2 holds about twice that; the time from begin to end of a rank has no bubble then,
// which pays where iterations overlap or transfers take time. Both want gradients of the weights
// that take no longer than forward ops. InvalidArgument with no stages or no microbatches.
absl::StatusOr<Schedule> MakeZeroBubbleH1(int32_t stages, int32_t microbatches);
absl::StatusOr<Schedule> MakeZeroBubbleH2(int32_t stages, int32_t microbatches);

}  // namespace crossmesh
