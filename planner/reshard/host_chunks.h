#pragma once

#include "common/mesh/topology.h"
#include "planner/network/demands.h"
#include "planner/network/host_network.h"
#include "planner/network/port_load.h"

#include <cstdint>

namespace crossmesh {

// How relays between hosts are cut.

// A 256th of what the host receives that receives most, from 64 KiB to 1 MiB: the last byte of a
// chain of D hops comes D - 1 chunks after the first hop's, and small requests would have their
// last hops idle for most of the execution.
int64_t HostChunkBytes(const Demands& demands, const HostNetwork& network);

// The part of a chunk with which chunks that share a NIC, since each takes another lane, take no
// longer than one alone.
int64_t ShareOfNic(int64_t chunk_bytes, const HostNetwork& network, const Topology& topology);

// How often the port that is busy longest passes so many bytes; at least once.
int32_t PeriodsOf(const BusiestPort& busiest, int64_t period_bytes);

// Plan::Spec::least_run_ns of a plan that keeps to the pace of its bound, or is as fast as may be.
int64_t LeastNanoseconds(bool keeps_pace, double bound_seconds);

}  // namespace crossmesh
