#include "tests/simulation/crashes.h"

#include <iterator>
#include <vector>

namespace crossmesh {
namespace {

// The history, unless something is wrong in it.
std::optional<SimulationResult> Try(const SimulationOptions& options, Crashes& crashes) {
  ++crashes.histories;
  SimulationResult result = RunSimulation(options);
  if (!result.violation.has_value()) return result;
  crashes.violated = options;
  return std::nullopt;
}

}  // namespace

Crashes CrashBeforeEffects(uint64_t seed, int64_t stride) {
  Crashes crashes;
  SimulationOptions options{.seed = seed, .is_short = true};
  const std::optional<SimulationResult> calm = Try(options, crashes);
  if (!calm.has_value()) return crashes;
  const std::vector<int64_t>& effects = calm->effects;
  const bool has_disk = seed % 2 == 0;
  for (int node = 0; node < std::ssize(effects); ++node) {
    for (int64_t effect = node % stride; effect < effects[node]; effect += stride) {
      options.crash = {.node = node, .effect = effect};
      if (!Try(options, crashes)) return crashes;
      if (node > 0 || !has_disk) continue;
      options.crash->loses_power = true;
      if (!Try(options, crashes)) return crashes;
    }
  }
  return crashes;
}

}  // namespace crossmesh
