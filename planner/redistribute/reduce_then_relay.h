#pragma once

#include "planner/redistribute/collective_cost.h"
#include "planner/redistribute/derivation.h"
#include "planner/redistribute/local_type.h"
#include "planner/redistribute/step.h"

#include <memory>

namespace crossmesh {

// The derivation that always exists: all sums are made where they are, then every device gets what
// it misses. Cost: devices.
Derivation ReduceThenRelay(std::shared_ptr<const TypeSpace> space, const CollectiveCost& cost,
                           StepStaging staging, DerivationOrigin origin);

}  // namespace crossmesh
