#pragma once

#include "planner/pipeline/op.h"

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// In which order the ranks of a pipeline compute the ops of one iteration. It has no times: an op
// begins when the one before it has ended and its inputs are there. ProvePipeline says whether it
// is complete and can run at all.
struct Schedule {
  int32_t stages = 0;
  int32_t microbatches = 0;
  std::vector<std::vector<Op>> ranks;

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// The same with weight gradients delayed: every backward op becomes two, the gradient of the input,
// which can be sent at once, and right after it that of the weights. One that is fused with a
// forward op stays whole.
Schedule DelayWeightGradients(const Schedule& schedule);

// A line for each rank: "0F0 0F1 0B0 0B1"; "0F0 0F1& 0B0 0B1" where 0F1 and 0B0 are fused.
std::string ToString(const Schedule& schedule);
// Reads such text; stages and microbatches are one more than the highest index. InvalidArgument as
// ParseOp.
absl::StatusOr<Schedule> ParseSchedule(absl::string_view text);

}  // namespace crossmesh
