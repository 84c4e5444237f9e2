#pragma once

#include "common/mesh/device.h"
#include "crossmesh/v1/pipeline_execution_service.pb.h"
#include "planner/layers/planned_layers.h"

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// What one worker does in an iteration of a layer program.
struct PlannedLayerProgram {
  v1::LayerProgram message;
  // Of each transfer of the message, its place in PlannedLayers::transfers.
  std::vector<int32_t> transfers;
};

// The programs of workers that own these devices, in their order; of one that has no device of any
// rank it is empty. Every device of every rank must be owned by exactly one of them: what CutParts
// finds otherwise. Cost: that of cutting every plan, and linear in ops and messages
// for each worker.
absl::StatusOr<std::vector<PlannedLayerProgram>> MakeLayerPrograms(
    const PlannedLayers& planned, const std::vector<std::vector<DeviceId>>& devices_of_worker);

}  // namespace crossmesh
