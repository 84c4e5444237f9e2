#pragma once

#include "examples/pipeline_training/checkpoint_files.h"
#include "examples/tensor_parallel_training/device_role.h"
#include "examples/tensor_parallel_training/parameters.h"

#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh::grid_training {

// What a device stores of a stage, as DeviceParameters::all_stored, box by box; while `state`
// lives.
std::vector<training::CheckpointBox> CheckpointBoxesOf(const DeviceRole& role,
                                                       const Tensors& state);

// The same from a checkpoint of any grid. As CheckpointFiles::Read.
absl::StatusOr<Tensors> ReadState(const training::CheckpointFiles& checkpoint,
                                  const DeviceRole& role);

}  // namespace crossmesh::grid_training
