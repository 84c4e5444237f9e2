#pragma once

#include "common/base/unique_fd.h"
#include "worker/probe/probe_protocol.h"
#include "worker/probe/timed_socket.h"
#include "worker/transport/socket/socket_address.h"

#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// The receiving end of one probe. Thread-compatible.
class ProbeListener {
 public:
  // Listens at a free port of an interface's address. Unavailable: it has none, or the system
  // refuses.
  static absl::StatusOr<ProbeListener> Open(const std::string& interface, const ProbeToken& token);

  const IpEndpoint& endpoint() const { return endpoint_; }

  // Waits for the sender that knows the token, receives, and reports to it. Strangers are cut off
  // when they have said something else, and do not keep others waiting. Blocks until the probe is
  // over. DeadlineExceeded: no sender came, or it did not end in time; Cancelled; Unavailable: it
  // broke.
  absl::StatusOr<ProbeReport> Serve(const ProbePatience& patience);

 private:
  // A caller that has not said a whole token yet.
  struct Caller {
    UniqueFd fd;
    std::string said;
  };

  ProbeListener(UniqueFd fd, IpEndpoint endpoint, const ProbeToken& token)
      : listener_(std::move(fd)), endpoint_(std::move(endpoint)), token_(token) {}

  absl::StatusOr<UniqueFd> WaitForSender(const ProbePatience& patience);
  // Hears what a caller says; false when it is to be cut off.
  bool Listen(Caller& caller) const;
  bool KnowsToken(const Caller& caller) const;

  UniqueFd listener_;
  IpEndpoint endpoint_;
  ProbeToken token_;
};

}  // namespace crossmesh
