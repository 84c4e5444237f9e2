#pragma once

#include "planner/redistribute/baselines/contiguous_steps.h"

#include <memory>
#include <optional>

namespace crossmesh {

// The synthesis of arXiv 2112.01075 as far as it is known (its section 4.3, after an open
// re-implementation): the plan that gathers every atom and then slices every atom is rewritten,
// pair by pair of neighbouring ops, until slices come first, gathers last, and exchanges between
// them. A run of exchanges that move nothing is one permute. No array on the way is larger than the
// larger end. Atoms must be primes, lengths must divide, and there are no partial sums; nothing
// otherwise. Cost: the square of the atoms.
std::optional<Derivation> NormalForm(std::shared_ptr<const TypeSpace> space,
                                     const CollectiveCost& cost);

}  // namespace crossmesh
