#pragma once

#include "common/plan/channels.h"
#include "common/plan/plan.h"

#include <absl/status/status.h>

namespace crossmesh {

// Proves that the places in each channel are 0, 1, ... without gaps, and that hops cannot wait for
// each other in a circle. A hop waits for the hop of its relay that brings the bytes to where it
// starts, and for the hop at the place before it in its channel. Every hop must start at the root
// or at the end of an earlier hop of its relay. Internal when it does not hold. Cost: linear in
// hops.
absl::Status ProveChannels(const Plan& plan, const Channels& channels);

}  // namespace crossmesh
