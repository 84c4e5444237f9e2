#pragma once

#include "planner/redistribute/redistribution_request.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace crossmesh {

// Sizes of atoms: for each axis those of the parts that move as a whole, major first.
using AtomSizes = std::vector<std::vector<int64_t>>;

// The parts that the two ends need, and no finer. `request` must be valid.
AtomSizes NeededAtoms(const RedistributionRequest& request);

// The ways to split the needed atoms into primes: one of 6 is 2*3 and 3*2. Atoms that are in one
// place at both ends stay whole. At most `ways_max` of them, the first with ascending primes.
std::vector<AtomSizes> PrimeAtoms(const RedistributionRequest& request, size_t ways_max);

}  // namespace crossmesh
