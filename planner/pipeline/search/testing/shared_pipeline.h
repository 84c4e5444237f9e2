#pragma once

#include "common/plan/testing/random_source.h"
#include "planner/pipeline/profile.h"

#include <cstdint>

namespace crossmesh {

struct SharedPipeline {
  PipelineProfile profile;
  int32_t microbatches = 0;
};

// Two or three ranks with several stages each: round and round, down and up again, both ways at
// once, or anywhere; with memory for a few microbatches, or any number. Small enough for an exact
// search, in most cases.
SharedPipeline RandomSharedPipeline(RandomSource& random);

}  // namespace crossmesh
