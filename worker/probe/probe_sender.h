#pragma once

#include "worker/probe/probe_protocol.h"
#include "worker/probe/timed_socket.h"
#include "worker/transport/socket/socket_address.h"

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

struct ProbeOrder {
  std::string interface;  // to leave by, where the system lets it
  IpEndpoint to;          // a ProbeListener
  ProbeToken token = {};
  absl::Duration time;  // of the flood, after which it ends
  int64_t bytes = 0;    // after which it ends as well
};

struct ProbeFigures {
  ProbeReport report;
  absl::Duration round_trip;  // the least of all echoes
};

// The sending end of one probe. Blocks until it is over. FailedPrecondition: no way leads there, or
// no answer comes within kProbeGrace; Unavailable: the interface has no address, or the probe
// broke; DeadlineExceeded: the other end fell silent; Cancelled.
absl::StatusOr<ProbeFigures> SendProbe(const ProbeOrder& order, const ProbePatience& patience);

}  // namespace crossmesh
