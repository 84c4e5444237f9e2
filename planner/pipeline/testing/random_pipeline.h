#pragma once

#include "common/plan/testing/random_source.h"
#include "planner/pipeline/profile.h"
#include "planner/pipeline/schedule.h"

#include <cstdint>

namespace crossmesh {

struct RandomPipelineOptions {
  int32_t stages_max = 6;
  bool may_share_ranks = true;
  bool may_skip = true;  // edges other than those of the chain
};

// A chain of stages with times in quarters, sizes of a few bytes, and no limits of memory.
PipelineProfile RandomProfile(RandomSource& random, const RandomPipelineOptions& options = {});

// Gives each edge up to three ports in either direction, of few that there are.
void AddRandomPorts(RandomSource& random, PipelineProfile& profile);

// Gives microbatches parts of the largest, in quarters.
void AddRandomScales(RandomSource& random, int32_t microbatches, PipelineProfile& profile);

// Gives some pairs of stages of one rank a time, in most cases less than that of both ops.
void AddRandomPairs(RandomSource& random, PipelineProfile& profile);

// Fuses some forward ops with the backward op after them, as long as the schedule can run.
void FuseRandomOps(RandomSource& random, const PipelineProfile& profile, Schedule& schedule);

// A schedule that can run. `in_order`: each stage takes microbatches in ascending order, for each
// kind of op, so that both ends of a transfer agree.
Schedule RandomSchedule(RandomSource& random, const PipelineProfile& profile, int32_t microbatches,
                        BackwardForm form, bool in_order);

}  // namespace crossmesh
