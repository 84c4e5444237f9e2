#pragma once

#include "common/communicators/communicator_key.h"
#include "common/plan/tensor_table.h"
#include "controller/dispatch/planned_reshard.h"
#include "controller/membership/worker_registry.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// Over which the GPUs of a plan exchange their bytes. Immutable.
struct TaskCommunicator {
  CommunicatorKey key;
  std::vector<DeviceRank> devices;  // by rank
};

// The one for a plan whose devices belong to `workers`: a rank for each device that moves
// bytes, in the order of their names, so that plans of the same GPUs share it whatever they
// move. Null when host memory moves bytes as well, or alone: then they go through host memory
// everywhere. Unavailable when no process drives one of the GPUs now.
absl::StatusOr<std::shared_ptr<const TaskCommunicator>> FindTaskCommunicator(
    const PlannedReshard& planned, std::span<const WorkerRecord> workers, uint64_t epoch);

}  // namespace crossmesh
