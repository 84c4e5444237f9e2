#pragma once

#include "common/base/cancel_check.h"
#include "common/mesh/topology.h"
#include "common/plan/plan.h"
#include "planner/network/nic_ports.h"

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// How connections that meet at a port share it.
enum class PortSharingRule : uint8_t {
  kEqual,    // all alike, as those of TCP do with as much under way on each
  kPlanned,  // in proportion to the bytes that the plan sends over each, as workers arrange
};

struct SimulatorOptions {
  PortSharingRule sharing = PortSharingRule::kPlanned;
  bool keep_transfers = false;  // of every chunk; needed for the critical chain
  int64_t transfers_max = int64_t{1} << 24;
};

// A chunk on its way from one host to another.
struct SimulatedTransfer {
  static constexpr int64_t kNone = -1;

  int64_t relay = 0;  // index into the plan's relays
  int64_t hop = 0;    // and hops
  int64_t chunk = 0;
  int32_t out_port = 0;  // index into SimulatedTimeline::ports
  int32_t in_port = 0;
  double begin_seconds = 0;
  double end_seconds = 0;      // the connection is free for the next one
  double arrival_seconds = 0;  // later by the latencies of both ports
  // The transfer at whose end, on the same connection, or else at whose arrival this one could
  // begin.
  int64_t after = kNone;
};

struct SimulatedTimeline {
  double seconds = 0;
  std::vector<NetworkPort> ports;
  std::vector<double> port_bytes;            // through each port
  std::vector<SimulatedTransfer> transfers;  // by end, when they are kept

  // From a transfer that could begin at once to the one that arrived last.
  std::vector<int64_t> CriticalChain() const;
};

// Runs a plan on a described network, chunk by chunk. Relays are cut into equal chunks of at most
// the size that the plan gives them; a device forwards a chunk when it has all of it; a connection,
// from one device to another over one NIC of each, carries chunks one after the other, always the
// one that is due first; connections share ports side by side at all times. What has left its
// sender arrives by the latencies of its two ports later, and the execution ends with the last
// arrival. Two hosts are joined by as few pairs of NICs as fill all of them, and chunks are spread
// over these in proportion to rates. Inside a host bytes take no time.
//
// ResourceExhausted when more than transfers_max chunks pass between hosts; Unimplemented when the
// plan has courses; Cancelled. Cost: transfers, times the connections that share ports with one
// another.
absl::StatusOr<SimulatedTimeline> Simulate(const Plan& plan, const Topology& topology,
                                           const SimulatorOptions& options = {},
                                           CancelCheck cancelled = NeverCancelled);

}  // namespace crossmesh
