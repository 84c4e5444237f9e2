#pragma once

#include "worker/pipeline/rank_queue.h"

namespace crossmesh {

// Computes a rank as a rehearsal does, until the program ends: every op, or pair, takes the time
// that it is profiled to take, by the clock and with no load. It fills its outputs with what most
// likely only this message has, and looks in its inputs for what must become of that
// (RehearsedTensor); where there is something else, the op fails with DataLoss.
void Rehearse(RankQueue& queue);

}  // namespace crossmesh
