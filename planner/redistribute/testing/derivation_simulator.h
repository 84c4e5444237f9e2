// Carries out derivations, element by element, on devices that are tables of values.

#pragma once

#include "planner/redistribute/derivation.h"

#include <cstdint>

#include <absl/status/status.h>

namespace crossmesh {

// Fills the devices of a small mesh as the source says, with values and summands by chance, does
// each step with what the devices hold, and compares what they hold in the end with the tensor put
// together and cut anew. Internal, with step, device and element, when anything differs: elements,
// values, bytes received by the busiest device, or the size of pieces in a group.
// What devices hold is worked out index by index, and shares nothing with MakeStep and the proof.
absl::Status SimulateDerivation(const Derivation& derivation, uint64_t seed);

}  // namespace crossmesh
