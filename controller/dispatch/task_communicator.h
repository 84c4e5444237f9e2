#pragma once

#include "common/communicators/communicator_key.h"
#include "common/plan/tensor_table.h"
#include "controller/dispatch/planned_reshard.h"
#include "controller/membership/worker_registry.h"

#include <cstdint>
#include <span>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// Over which some GPUs of a plan exchange their bytes. Immutable.
struct TaskCommunicator {
  CommunicatorKey key;
  std::vector<DeviceRank> devices;  // by rank
};
using TaskCommunicators = std::vector<TaskCommunicator>;

// Those for a plan whose devices belong to `workers`: one for each broadcast group, and one for all
// others that move bytes. Ranks are in the order of the devices' names, so that plans of the same
// GPUs share communicators whatever they move. Empty when host memory moves bytes as well, or
// alone: then they go through host memory everywhere. Unavailable when no process drives one of
// the GPUs now.
absl::StatusOr<TaskCommunicators> FindTaskCommunicators(const PlannedReshard& planned,
                                                        std::span<const WorkerRecord> workers,
                                                        uint64_t epoch);

}  // namespace crossmesh
