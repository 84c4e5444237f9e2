#pragma once

#include "planner/redistribute/baselines/contiguous_steps.h"

#include <memory>
#include <optional>

namespace crossmesh {

// The least bytes of steps that each change one atom, and only the most minor one of a dimension:
// the moves of DTensor's graph planner, by Dijkstra's algorithm. Nothing when there are none, e.g.
// since all lengths must divide. Cost: the contiguous layouts of the atoms.
std::optional<Derivation> OneAxis(std::shared_ptr<const TypeSpace> space,
                                  const CollectiveCost& cost);

}  // namespace crossmesh
