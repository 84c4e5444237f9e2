#pragma once

#include "common/plan/m2n_transfer.h"
#include "planner/network/gpu_network.h"

#include <cstdint>
#include <span>

namespace crossmesh {

// Tensors that NCCL M2N moves alike.
struct M2nTensors {
  M2nTransfer transfer;
  int64_t item_bytes = 1;
  int64_t tensors = 1;
};

// How long M2N is predicted to take for these tensors in one group of calls, by its defaults. It
// makes batches of what has equal meshes and placements, as long as their tiles fit into its
// buffer, and does one after the other. In a batch a device packs what it sends, sends all of it,
// and unpacks what it has received: none of the three overlaps with another.
//
// Replicas of the destination are dealt to those of the source, and further ones of the source do
// nothing. On one host a source puts each of its parts into every copy, by copy engines. Between
// hosts a kernel sends each part to one copy on the first host, which passes it to the other copies
// there, by links, and to one copy on the next host.
//
// Cost: linear in the pairs of parts that meet, times copies.
double PredictM2n(const GpuNetwork& network, std::span<const M2nTensors> tensors);

}  // namespace crossmesh
