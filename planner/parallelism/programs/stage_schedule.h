#pragma once

#include "planner/pipeline/schedule.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <absl/status/status.h>

namespace crossmesh {

// Forward and backward of one microbatch after the other, of one stage.
Schedule OneByOne(int32_t microbatches);

// Which stages each rank has, ascending. Those of an empty schedule, and ranks whose ops name none,
// have the one of their number.
std::vector<std::vector<StageIndex>> StagesOfRanks(const Schedule& schedule, size_t stages);

// InvalidArgument: a schedule of other stages or microbatches; a stage on several ranks, or on the
// rank of its neighbour; one in which a microbatch does not go forward and then back once, at once
// or with the weights' gradients later; fused ops.
absl::Status CheckStageSchedule(const Schedule& schedule, size_t stages, int32_t microbatches);

}  // namespace crossmesh
