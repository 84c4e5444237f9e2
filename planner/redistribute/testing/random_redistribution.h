// Requests by chance, each from its seed alone.

#pragma once

#include "planner/redistribute/redistribution_request.h"

#include <cstdint>

namespace crossmesh {

struct RandomRedistributionLimits {
  int axes = 3;
  int dimensions = 3;
  int64_t devices_max = 24;
  int64_t elements_max = 4096;
  bool exact_counts = false;  // so many axes and dimensions, and not up to so many
  bool partial = true;  // the source may have partial sums, of which the destination keeps some
  bool uneven = true;   // dimensions need not divide
  bool parts = true;    // parts of axes may lie apart
};

// Valid by Validate.
RedistributionRequest RandomRedistribution(uint64_t seed, const RandomRedistributionLimits& limits);

}  // namespace crossmesh
