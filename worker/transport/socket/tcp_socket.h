#pragma once

#include "common/base/unique_fd.h"
#include "worker/transport/socket/socket_address.h"

#include <span>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// errno `error` with what was being done, as Unavailable: failures of links and peers.
absl::Status SocketError(absl::string_view doing, int error);

// The address, with port 0, of the first of these network interfaces that has one; IPv4 first.
// InvalidArgument: no interface named. Unavailable: none of them has an address.
absl::StatusOr<IpEndpoint> FindInterface(std::span<const std::string> interfaces);

// A socket that listens at `at`; on port 0 at a free one, which is written there. Unavailable: the
// system refuses.
absl::StatusOr<UniqueFd> ListenAt(IpEndpoint& at);

// A socket on its way from an address of this host to another; does not wait. Unavailable: no link
// leads there. What else goes wrong is told when the socket is used.
absl::StatusOr<UniqueFd> ConnectFrom(const IpEndpoint& from, const IpEndpoint& to);

// The IP address and port at the other end of a connection, for messages.
std::string OtherSide(int fd);

// The next connection that came in, or none, with errno.
UniqueFd AcceptAt(int listener);

}  // namespace crossmesh
