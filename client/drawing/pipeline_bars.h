#pragma once

#include "planner/pipeline/op_table.h"
#include "planner/pipeline/timeline.h"

#include <cstdint>
#include <vector>

namespace crossmesh {

// What a rank computes, for a picture: one op, or more that cannot be told apart there.
struct PipelineBar {
  double begin = 0;  // as in the run
  double end = 0;
  OpKind kind = OpKind::kForward;
  int32_t chunk = 0;            // which of the rank's stages
  OpIndex op = OpTable::kNone;  // none: of several ops
};

// A rank's bars in the order of time, on paper on which `pixel_seconds` pass in a pixel. Where ops
// take less than a pixel each in the mean, a pixel has the kind and stage that takes most of it.
std::vector<PipelineBar> MakeBars(const OpTable& ops, const PipelineTimeline& run, RankIndex rank,
                                  double pixel_seconds);

}  // namespace crossmesh
