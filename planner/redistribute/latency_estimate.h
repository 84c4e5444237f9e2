#pragma once

#include "planner/redistribute/collective_cost.h"
#include "planner/redistribute/displacement.h"
#include "planner/redistribute/exchange_estimate.h"

#include <cstdint>

#include <absl/container/flat_hash_map.h>

namespace crossmesh {

// What steps and messages take on the way to the destination, at least, whatever they carry and
// unless one of the steps is a relay. A step in groups of N devices takes N - 1 messages or more,
// and steps of groups N1, N2, ... change the coordinates of atoms of sizes up to their product. Let
// F(n) be the least of any steps with a product of at least n. Then it takes at least
//  - without a permute, F of all atoms that cut and have to go elsewhere, or nowhere;
//  - with one, a step and a message, and F of what dimensions are cut too little, times what the
//    array grows by: gathers grow arrays, and what they replicate a slice can cut;
//  - for sums, F of their atoms, and F of what the array grows by.
// Of the messages without a permute, log2 n at least cross slow links when atoms of sizes n do.
// Thread-compatible: it remembers F.
class LatencyEstimate {
 public:
  LatencyEstimate(const SearchSpace& space, const StepPrices& prices);
  double Seconds(const PackedType& type, const Displacement& displaced, const LocalSizes& sizes);

 private:
  double LeastFor(int64_t product);
  int64_t DisplacedAcross(const PackedType& type) const;

  const SearchSpace& space_;
  const StepPrices& prices_;
  const double message_;  // seconds of one at least
  const double across_;   // more seconds of one that is not on the fastest links, at least
  absl::flat_hash_map<int64_t, double> least_for_;
};

}  // namespace crossmesh
