#include "planner/pipeline/formats/shape.h"

namespace crossmesh {

std::vector<PipelineShape::Edge> ChainOf(int32_t stages) {
  std::vector<PipelineShape::Edge> edges;
  for (StageIndex s = 1; s < stages; ++s) edges.push_back({s - 1, s});
  return edges;
}

PipelineShape ShapeOf(const PipelineProfile& profile) {
  PipelineShape shape;
  for (const StageProfile& stage : profile.stages) shape.stage_ranks.push_back(stage.rank);
  for (const EdgeProfile& edge : profile.edges) shape.edges.push_back({edge.from, edge.to});
  return shape;
}

PipelineProfile FreeProfile(const PipelineShape& shape, RankIndex ranks) {
  PipelineProfile profile;
  profile.rank_bytes_max.resize(ranks);
  for (const RankIndex rank : shape.stage_ranks) profile.stages.push_back({.rank = rank});
  for (const PipelineShape::Edge& edge : shape.edges) {
    profile.edges.push_back({.from = edge.from, .to = edge.to});
  }
  return profile;
}

}  // namespace crossmesh
