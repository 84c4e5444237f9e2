#pragma once

#include "common/base/unique_fd.h"
#include "common/base/unix_listener.h"
#include "common/rpc/address.h"

#include <optional>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// Sockets that listen at an address; none of them blocks.
struct ListeningAddress {
  RpcAddress address;  // with the port that was bound in place of 0
  // Of TCP: one for each address that the host's name stands for, so of "localhost" two.
  std::vector<UniqueFd> tcp;
  std::optional<UnixListener> unix_socket;
};

// `silence_max`: how long what was sent to a client may go unacknowledged before its connection is
// given up. FailedPrecondition, with the address and the system's reason: another server listens
// there, or the system refuses; of a Unix socket as UnixListener says. May ask a resolver.
absl::StatusOr<ListeningAddress> ListenOn(const RpcAddress& address, absl::Duration silence_max);

}  // namespace crossmesh
