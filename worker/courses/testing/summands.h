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

// The same with F32 of which nearly every sum is rounded, so that its bits say in which order it
// was made.
void FillRoundedSummands(const RedistributionInputs& inputs, const Plan& plan,
                         const TileMemory& memory);

// DataLoss, naming a slot, when an element of a destination is not what gathering all summands,
// reducing them and slicing the result gives. Sums are made over slots that agree on the axes that
// stay partial. `only`: of that device.
absl::Status CheckSums(const RedistributionInputs& inputs, const Plan& plan,
                       const TileMemory& memory, std::optional<DeviceRank> only = std::nullopt);

// The same after FillRoundedSummands, of sums and means that are made in one step: bit for bit what
// adding one summand after the other makes, in the order of their slots.
absl::Status CheckSumsInOrder(const RedistributionInputs& inputs, const Plan& plan,
                              const TileMemory& memory);

// The same of sums that go round a ring: bit for bit what adding one summand after the other makes,
// in the order of their slots from any one on.
absl::Status CheckSumsRoundRing(const RedistributionInputs& inputs, const Plan& plan,
                                const TileMemory& memory);

}  // namespace crossmesh
