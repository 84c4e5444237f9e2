#include "planner/layers/layer_exposures.h"

#include <cstddef>

#include <absl/container/flat_hash_map.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

std::vector<LayerExposure> ExposuresByLayer(const LayerProgram& program, const LayerTimeline& run) {
  std::vector<LayerExposure> layers;
  absl::flat_hash_map<absl::string_view, size_t> places;
  std::vector<size_t> layer_of;  // by op
  for (const LayerProgram::Op& op : program.ops) {
    const auto [found, is_new] = places.try_emplace(op.layer, layers.size());
    if (is_new) layers.push_back({.name = op.layer});
    layers[found->second].op_seconds += op.seconds;
    layer_of.push_back(found->second);
  }
  for (size_t t = 0; t < program.transfers.size(); ++t) {
    const auto& messages = program.transfers[t].messages;
    for (size_t m = 0; m < messages.size(); ++m) {
      LayerTimeline::Exposure& of = layers[layer_of[messages[m].producer]].messages;
      of.exposed += run.message_exposures[t][m].exposed;
      of.hidden += run.message_exposures[t][m].hidden;
    }
  }
  return layers;
}

}  // namespace crossmesh
