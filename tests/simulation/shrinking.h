#pragma once

#include "tests/simulation/simulation.h"

#include <string>

namespace crossmesh {

// The shortest history with a violation that is found by leaving faults and clients out, as a text:
// the violation, the faults, and the last lines of the log. `options` gives one. Cost: some
// hundred simulations at most.
std::string ShortestHistory(SimulationOptions options);

// The violation of a history, its faults, and the last lines of its log.
std::string TellHistory(SimulationOptions options);

}  // namespace crossmesh
