#pragma once

#include "common/base/cancel_check.h"
#include "common/mesh/topology.h"
#include "common/plan/plan.h"
#include "controller/network/nic_ports.h"

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// How connections that meet at a port share it.
enum class PortSharingRule : uint8_t {
  kEqual,    // all alike, as those of TCP do
  kPlanned,  // in proportion to the bytes that the plan sends over each
};

struct SimulatorOptions {
  PortSharingRule sharing = PortSharingRule::kEqual;
  bool keep_transfers = false;  // of every chunk; needed for the critical chain
};

// A chunk on its way from one host to another.
struct SimulatedTransfer {
  static constexpr int64_t kNone = -1;

  int64_t relay = 0;  // index into the plan's relays
  int64_t hop = 0;    // and hops
  int64_t chunk = 0;
  int32_t out_port = 0;  // index into SimulatedRun::ports
  int32_t in_port = 0;
  double begin_seconds = 0;
  double end_seconds = 0;
  int64_t after = kNone;  // the transfer at whose end this one could begin
};

struct SimulatedRun {
  double seconds = 0;
  std::vector<NetworkPort> ports;
  std::vector<double> port_bytes;            // through each port
  std::vector<SimulatedTransfer> transfers;  // by end, when they are kept

  // From a transfer that could begin at once to the one that ended last.
  std::vector<int64_t> CriticalChain() const;
};

// Runs a plan on a described network, chunk by chunk. Relays are cut into equal chunks of the
// plan's size at most; a device forwards a chunk when it has all of it; a connection, from one
// device to another over one NIC of each, carries chunks one after the other in the order of the
// channel; connections share ports side by side at all times. A sender spreads its chunks over its
// NICs and over the receiver's in proportion to their rates. Inside a host bytes take no time, and
// latencies are not part of the model.
//
// ResourceExhausted when more than kSimulatedTransfersMax chunks pass between hosts; Cancelled.
// Cost: transfers, times the connections that share ports with one another.
constexpr int64_t kSimulatedTransfersMax = int64_t{1} << 24;
absl::StatusOr<SimulatedRun> Simulate(const Plan& plan, const Topology& topology,
                                      const SimulatorOptions& options = {},
                                      CancelCheck cancelled = NeverCancelled);

}  // namespace crossmesh
