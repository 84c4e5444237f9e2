#pragma once

#include "common/plan/plan.h"
#include "planner/network/demands.h"
#include "planner/network/gpu_network.h"

namespace crossmesh {

// The least time of any plan between GPUs in the fluid model in which only holders and receivers
// carry a class: the greatest of three, each exact for a network that lets more pass than the
// GPUs' own.
//
// - Hosts: what enters and leaves them, by the NICs of those GPUs that take part.
// - NICs of GPUs: what must come to one GPU, since no other of its host needs it. Not where GPUs
//   share a NIC.
// - GPUs: what each must receive, and what they must send together, by link and NIC at once; by
//   links alone where there is one host.
//
// `demands` are those between devices (GroupByDevices). Cost: that of three bounds of hosts.
Bound BoundOfGpus(const Demands& demands, const GpuNetwork& network);

// The same demands between the hosts of these devices: those whose receivers are not all on hosts
// that hold them. Cost: linear in the demands and their devices.
Demands DemandsBetweenHosts(const Demands& demands, const GpuNetwork& network);

}  // namespace crossmesh
