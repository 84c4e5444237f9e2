#pragma once

#include "common/base/unique_fd.h"
#include "worker/transport/socket/socket_address.h"

#include <optional>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <sys/socket.h>

namespace crossmesh {

// errno `error` with what was being done, as Unavailable: failures of links and peers.
absl::Status SocketError(absl::string_view doing, int error);

// IPv4 and IPv6 addresses of the system as endpoints. Nothing for others, and for those that mean
// nothing without the interface that they are of.
std::optional<IpEndpoint> ToEndpoint(const sockaddr* address);

// A socket that listens at `at`; on port 0 at a free one, which is written there. Unavailable: the
// system refuses.
absl::StatusOr<UniqueFd> ListenAt(IpEndpoint& at);

// A socket on its way from an address of this host to another; does not wait. Where `interface` is
// not empty it is bound to that, unless the system refuses, which is logged. Unavailable: no link
// leads there. What else goes wrong is told when the socket is used.
absl::StatusOr<UniqueFd> ConnectFrom(const IpEndpoint& from, const IpEndpoint& to,
                                     const std::string& interface = "");

// The IP address and port at the other end of a connection, for messages.
std::string OtherSide(int fd);

// The next connection that came in, or none, with errno.
UniqueFd AcceptAt(int listener);

}  // namespace crossmesh
