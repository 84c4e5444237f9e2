// Which rank has which stage where ranks have several, which the literature calls chunks. The
// profile of a schedule places its stages alike.

#pragma once

#include "planner/pipeline/op.h"

namespace crossmesh {

// Round and round: chunk c of rank r is stage c * ranks + r.
constexpr RankIndex LoopedRank(StageIndex stage, int32_t ranks) { return stage % ranks; }
constexpr StageIndex LoopedStage(RankIndex rank, int32_t chunk, int32_t ranks) {
  return chunk * ranks + rank;
}

// Down and up again: two chunks, the first and the last stage on rank 0.
constexpr RankIndex VRank(StageIndex stage, int32_t ranks) {
  return stage < ranks ? stage : 2 * ranks - 1 - stage;
}
constexpr StageIndex VStage(RankIndex rank, int32_t chunk, int32_t ranks) {
  return chunk == 0 ? rank : 2 * ranks - 1 - rank;
}

}  // namespace crossmesh
