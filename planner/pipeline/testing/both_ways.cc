#include "planner/pipeline/testing/both_ways.h"

#include <cstdint>

namespace crossmesh {

PipelineProfile BothWays(const PipelineProfile& profile) {
  PipelineProfile both = profile;
  const auto stages = static_cast<int32_t>(profile.stages.size());
  // The other direction meets the ranks in reverse, and none of its edges leads to the first.
  for (StageProfile stage : profile.stages) {
    stage.rank = profile.ranks() - 1 - stage.rank;
    both.stages.push_back(stage);
  }
  for (EdgeProfile edge : profile.edges) {
    edge.from += stages;
    edge.to += stages;
    both.edges.push_back(edge);
  }
  for (PairProfile pair : profile.pairs) {
    pair.forward += stages;
    pair.backward += stages;
    both.pairs.push_back(pair);
  }
  return both;
}

}  // namespace crossmesh
