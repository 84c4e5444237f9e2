#pragma once

#include "crossmesh/v1/pipeline_service.pb.h"
#include "crossmesh/v1/reshard.pb.h"
#include "examples/tensor_parallel_training/parameters.h"
#include "examples/tensor_parallel_training/training_phase.h"

#include <span>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh::grid_training {

// "before-3", "after-3": where processes have the state of a phase.
std::string StorageBefore(size_t phase);
std::string StorageAfter(size_t phase);

// What the controller is asked to run for a phase: its program, `iterations` times. As RequestOf,
// and MakeGridProgram.
absl::StatusOr<v1::StartPipelineRequest> RunOf(const TrainingPhase& phase,
                                               const TrainingSettings& settings,
                                               std::span<const DeviceId> devices,
                                               int64_t iterations);

// What a reshard is to move: the state from one grid's layouts, in a storage, to another's.
// Destination storages are made. As ManifestOf.
absl::StatusOr<v1::ReshardSpec> MoveOf(const TrainingSettings& settings,
                                       const v1::ReshardSide& from, const v1::ReshardSide& to);

}  // namespace crossmesh::grid_training
