#pragma once

#include "tests/simulation/simulation.h"

#include <cstdint>
#include <optional>

namespace crossmesh {

// What came of crashes in one short history.
struct Crashes {
  int64_t histories = 0;
  // Of the first with a violation; without a crash: there is one without any.
  std::optional<SimulationOptions> violated;
};

// The short history of a seed, and then again for each controller, each worker and every
// `stride`-th effect of its process, with a crash just before it; with the controller's disk, each
// of these with and without a loss of power.
Crashes CrashBeforeEffects(uint64_t seed, int64_t stride = 1);

}  // namespace crossmesh
