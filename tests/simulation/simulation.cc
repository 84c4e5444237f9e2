#include "tests/simulation/simulation.h"

#include "common/base/log.h"
#include "tests/simulation/simulated_cluster.h"

namespace crossmesh {

SimulationResult RunSimulation(const SimulationOptions& options) {
  const ScopedLogSink silence([](const LogRecord& /*record*/) {});
  SimulatedCluster cluster(options);
  return cluster.Run();
}

}  // namespace crossmesh
