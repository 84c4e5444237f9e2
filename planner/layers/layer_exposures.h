#pragma once

#include "planner/layers/layer_program.h"
#include "planner/layers/layer_timeline.h"

#include <string>
#include <vector>

namespace crossmesh {

// What a layer takes in an iteration. Its messages are those that its ops give: of a layer's
// product the sum, of its shard the gather, of its gradient the scatter, whichever op needs them.
struct LayerExposure {
  std::string name;       // empty: of ops that say none
  double op_seconds = 0;  // on all ranks
  LayerTimeline::Exposure messages;
};

// In the order of their first ops. Together they are what all transfers are. `run` is that of
// `program`. Cost: linear.
std::vector<LayerExposure> ExposuresByLayer(const LayerProgram& program, const LayerTimeline& run);

}  // namespace crossmesh
