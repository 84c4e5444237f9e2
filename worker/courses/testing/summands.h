// Partial sums that are known without moving anything.

#pragma once

#include "common/plan/plan.h"
#include "common/reshard/reshard_inputs.h"
#include "worker/executor/testing/tile_memory.h"

#include <optional>

#include <absl/status/status.h>

namespace crossmesh {

// Fills the source tiles of a plan, whose tensors are of F32 or I32 and whose table has one
// placement on each side, with summands: small whole numbers, whose sums are exact in any order.
void FillSummands(const RedistributionInputs& inputs, const Plan& plan, const TileMemory& memory);

// The same with random bits of any type: numbers of all magnitudes, infinite ones and NaNs.
void FillRandomSummands(const RedistributionInputs& inputs, const Plan& plan,
                        const TileMemory& memory);

// DataLoss, naming a slot, when an element of a destination is not what gathering all summands,
// reducing them and slicing the result gives. Sums are made over slots that agree on the axes that
// stay partial. `only`: of that device.
absl::Status CheckSums(const RedistributionInputs& inputs, const Plan& plan,
                       const TileMemory& memory, std::optional<DeviceRank> only = std::nullopt);

}  // namespace crossmesh
