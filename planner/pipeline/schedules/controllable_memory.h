#pragma once

#include "planner/pipeline/schedule.h"

#include <cstdint>

#include <absl/status/statusor.h>

namespace crossmesh {

// Schedules of controllable memory (Qi et al., arXiv 2405.15362): two stages to a rank, placed as
// VRank says. A microbatch's ops stand in a building block; a block begins every six ops, and a
// rank holds as many microbatches as live at once: their life in the block, divided by that period.
// Gradients of the weights fill what is free. Meant for ops that take equally long.
enum class MemoryBlock : uint8_t {
  kMin,   // V-Min: about a third of what 1F1B's first stage holds
  kHalf,  // V-Half: about half of it, with a smaller bubble
};

// The blocks one after another, and then, as the authors do, ops moved into the bubbles while no
// rank holds more than the fullest: FillBubbles. InvalidArgument with no ranks or no microbatches.
absl::StatusOr<Schedule> MakeControllableMemory(MemoryBlock block, int32_t ranks,
                                                int32_t microbatches);

// Without that last step: the bare pattern.
absl::StatusOr<Schedule> MakeMemoryPattern(MemoryBlock block, int32_t ranks, int32_t microbatches);

}  // namespace crossmesh
