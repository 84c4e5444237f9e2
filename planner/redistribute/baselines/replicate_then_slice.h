#pragma once

#include "planner/redistribute/baselines/contiguous_steps.h"

namespace crossmesh {

// Reduces, gathers everything everywhere, and slices. All lengths must divide.
Derivation ReplicateThenSlice(std::shared_ptr<const TypeSpace> space, const CollectiveCost& cost);

}  // namespace crossmesh
