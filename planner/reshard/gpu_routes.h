#pragma once

#include "common/plan/plan.h"
#include "common/plan/slicing.h"
#include "common/plan/tensor_table.h"
#include "planner/network/demands.h"
#include "planner/network/gpu_network.h"
#include "planner/network/routing.h"
#include "planner/reshard/host_routes.h"

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// Routes between GPUs, for every group of classes with the same holders and receivers; places are
// devices.
//
// A byte comes to a host by one of the GPUs there that need it, its entry, and goes on to the
// others by links. So that hosts with several such GPUs use the NICs of all, a group is cut into as
// many equal parts, each with an entry of its own, but into none of less than `part_bytes_min`.
// What entries receive are demands on a network of NICs, what goes on inside of hosts demands on
// one of links, and both are routed like demands between hosts (RouteByFlow): in the least time of
// each network by itself. The pieces of a group have the hops of both.
//
// ResourceExhausted: more hops than a plan may have. Cost: that of two plans between hosts.
absl::StatusOr<HostRoutes> RouteBetweenGpus(const Demands& demands, const GpuNetwork& network,
                                            int64_t part_bytes_min = int64_t{1} << 20);

// When the pieces of these routes are due such that each GPU sends to one other after the other: to
// those of higher rank first, and on from the lowest, so that GPUs that all send to all never meet
// at a receiver. For a piece as much of the execution as it has of the bytes that its root sends.
std::vector<DueTime> TakeTurns(const Demands& demands, const HostRoutes& routes);

// The relays of all classes. Beyond a plan's limits ResourceExhausted. Cost: linear in the hops.
absl::StatusOr<Routes> RelaysBetweenGpus(const TensorTable& tensors, const Slicing& slicing,
                                         const HostGroups& groups, const HostRoutes& routes);

}  // namespace crossmesh
