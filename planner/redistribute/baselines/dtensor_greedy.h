#pragma once

#include "planner/redistribute/baselines/contiguous_steps.h"

#include <memory>
#include <optional>

namespace crossmesh {

// PyTorch DTensor's default planner, as its _redistribute.py reads: axis by axis, the last one
// first, each that does not replicate goes to its target, or is replicated where earlier axes cut
// that dimension otherwise; then the first one first, each that is left. Atoms must be whole axes.
// Nothing when axes do not cut a dimension in the mesh's order.
std::optional<Derivation> DtensorGreedy(std::shared_ptr<const TypeSpace> space,
                                        const CollectiveCost& cost);

}  // namespace crossmesh
