#pragma once

#include "common/mesh/mesh.h"
#include "common/mesh/topology.h"
#include "planner/redistribute/collective_cost.h"
#include "planner/redistribute/ring_prices.h"

#include <optional>

namespace crossmesh {

// What collectives cost between the devices of a mesh, by the network's description. Each axis is
// cut where it leaves a host: of its parts the minor one has the links inside hosts, the major one
// the NICs. Rates are those of the slowest device, and of what devices share, as a NIC or the
// memory of a host, each has its part, since all of them communicate at once.
//
// GPUs are devices that the description lists; all others are host memory. What a step and a
// message cost is the description's for GPUs, and assumed for host memory.
//
// Example: node=2, gpu=4 on two hosts has the links of GPUs for gpu and NICs for node. An axis of 8
// over both hosts has NICs for x:(1)2 and links for x:(2)4.
//
// Cost: linear in the devices, times axes and the sizes that divide them.
CollectiveCost CostOfMesh(const Mesh& mesh, const Topology& topology);

// What collectives of NCCL cost between the devices of a mesh, gathers alone; nothing where they
// are not all GPUs. The uplinks of racks are not looked at. Cost: as CostOfMesh.
std::optional<RingCost> RingCostOfMesh(const Mesh& mesh, const Topology& topology);

}  // namespace crossmesh
