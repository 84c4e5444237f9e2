#pragma once

#include "common/plan/tensor_table.h"
#include "planner/network/routing.h"

namespace crossmesh {

// Makes the relays that enter a host from the same other host due one after the other, evenly over
// the whole run: for strategies that say in which order relays go, and not when. So their chunks
// are cut as finely as the pair of hosts has little to send, and what is under way to a host from
// all others together is no more than two periods. Cost: linear.
void SpreadOverTime(const TensorTable& tensors, Routes& routes);

}  // namespace crossmesh
