#pragma once

#include <cstdint>

namespace crossmesh {

// Prints how far schedules are from the bound in the mean, over `instances` random chains in each
// cell of two grids, and returns whether the search is nowhere further than the best of the others.
//
// Full backward ops: 4 to 64 stages, 8 to 128 microbatches; transfers between all stages, at every
// fourth edge, or none; equal and unequal stages. The search has as much memory as eager-1F1B
// holds. Split: 4 to 16 stages, the same memory on every rank, of 1, 1.5 and 2 times what 1F1B's
// first stage holds.
bool MeasureGrids(int64_t instances);

}  // namespace crossmesh
