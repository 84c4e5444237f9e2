#pragma once

#include "planner/redistribute/derivation.h"

#include <cstdint>
#include <optional>

#include <absl/status/status.h>

namespace crossmesh {

struct DerivationLimits {
  std::optional<int64_t> live_bytes_max;
  std::optional<int64_t> local_bytes_max;
  StepStaging staging;
};

// OK when the derivation does what it says, however it was found: types compose from the request's
// source to its destination, every step is one of its kind and costs what it says, and on every
// device what it receives is what it is to have, element for element: pieces of one size in a
// group, all summands in a reduction, one sender for each receiver of a permute, and in a relay
// every index of every dimension held somewhere. No device waits for itself, since steps are in one
// order on all of them. Internal, with the step and what was expected and found, otherwise;
// ResourceExhausted when it does not fit the limits.
// Cost: devices times group for each step.
absl::Status ProveDerivation(const Derivation& derivation, const DerivationLimits& limits = {});

}  // namespace crossmesh
