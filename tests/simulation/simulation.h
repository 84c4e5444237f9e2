#pragma once

#include "tests/simulation/simulated_fault.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/time/time.h>

namespace crossmesh {

// The process of a node ends just before one of its effects (SimulatedNode), and is started again.
struct SimulatedCrash {
  int node = 0;  // as SimulatedCluster numbers them
  int64_t effect = 0;
  bool loses_power = false;  // its disk, as well
};

// A history in which little happens.
struct CalmHistory {
  absl::Duration length;
  absl::Duration reshard_every;                           // on average
  absl::Duration fault_every = absl::InfiniteDuration();  // on average
};

// One history of a cluster: a controller with a disk, or two with an etcd, four workers, and
// clients; all of it simulated, in one thread.
struct SimulationOptions {
  uint64_t seed = 0;
  bool keeps_log = false;
  // In place of nine minutes with faults: one of everything, which ends when all of it has, with
  // no fault but a crash.
  bool is_short = false;
  std::optional<SimulatedCrash> crash;
  // In place of nine minutes with faults: one whose only client reshards.
  std::optional<CalmHistory> calm;
  // In place of those that follow from the seed.
  std::optional<std::vector<SimulatedFault>> faults;
  std::vector<int> clients = {0, 1, 2, 3};
};

struct SimulationResult {
  std::optional<std::string> violation;
  std::string log;      // when it is kept
  uint64_t digest = 0;  // of the log, kept or not
  std::vector<SimulatedFault> faults;
  absl::Duration simulated;
  int64_t ended = 0;  // operations
  int64_t committed = 0;
  int64_t iterations = 0;  // of pipelines, complete
  // Of the processes of the controllers and then the workers, until all had ended; of a short
  // history.
  std::vector<int64_t> effects;
};

// Equal options give equal results.
SimulationResult RunSimulation(const SimulationOptions& options);

}  // namespace crossmesh
