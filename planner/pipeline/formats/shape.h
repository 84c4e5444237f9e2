#pragma once

#include "planner/pipeline/profile.h"

#include <vector>

namespace crossmesh {

// What a pipeline is made of, without what it costs.
struct PipelineShape {
  struct Edge {
    StageIndex from = 0;
    StageIndex to = 0;

    friend bool operator==(const Edge&, const Edge&) = default;
  };

  std::vector<RankIndex> stage_ranks;  // by stage
  std::vector<Edge> edges;

  friend bool operator==(const PipelineShape&, const PipelineShape&) = default;
};

// From each stage to the next.
std::vector<PipelineShape::Edge> ChainOf(int32_t stages);

PipelineShape ShapeOf(const PipelineProfile& profile);

// The profile of that shape on `ranks` ranks in which nothing costs anything: enough to prove the
// order of a schedule.
PipelineProfile FreeProfile(const PipelineShape& shape, RankIndex ranks);

}  // namespace crossmesh
