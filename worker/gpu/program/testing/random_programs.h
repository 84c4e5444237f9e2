#pragma once

#include "common/plan/plan.h"
#include "common/plan/testing/random_source.h"
#include "worker/gpu/program/testing/device_programs.h"

#include <absl/status/statusor.h>

namespace crossmesh {

// Random tensors, layouts and topology, planned by one of the strategies; now and then relays of
// several chunks and leaves.
Plan RandomPlanned(RandomSource& random);
// The same tensors with random routes, whose hops follow each other after any number of periods.
Plan RandomDrawn(RandomSource& random);
// One or the other, of tensors of which some are sent as F8_E4M3, with their scales.
Plan RandomQuantized(RandomSource& random);

// The programs of all devices, with little staging most of the time: the first size, of some drawn,
// that is enough.
absl::StatusOr<DevicePrograms> RandomPrograms(RandomSource& random, const Plan& plan);

}  // namespace crossmesh
