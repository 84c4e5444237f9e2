#pragma once

#include "planner/redistribute/collective_cost.h"
#include "planner/redistribute/displacement.h"
#include "planner/redistribute/latency_estimate.h"
#include "planner/redistribute/missing_estimate.h"
#include "planner/redistribute/search_space.h"

#include <cstdint>

namespace crossmesh {

enum class PathObjective : uint8_t { kSeconds, kBytes, kPeakLiveBytes };

// What is left to do from a type on, at least.
struct PathRemainder {
  double objective = 0;
  int64_t bytes = 0;
  int32_t communicating = 0;
  double disorder = 0;  // not a cost: how much is out of place
};

// Estimates remainders of the types of one space. Thread-compatible: it remembers them.
class PathEstimate {
 public:
  // Refers to both.
  PathEstimate(const SearchSpace& space, const StepPrices& prices, PathObjective objective);
  // Cost: the atoms squared, once for each type.
  // Until the next call.
  const PathRemainder& Of(const PackedType& type);

 private:
  PathRemainder Estimate(const PackedType& type);

  const SearchSpace& space_;
  const StepPrices& prices_;
  const PathObjective objective_;
  MissingEstimate missing_;
  DisplacementCount displacement_;
  LatencyEstimate latency_;
  const int64_t wanted_elements_;  // of a local array at the destination
  PackedTypeMap<PathRemainder> known_;
};

}  // namespace crossmesh
