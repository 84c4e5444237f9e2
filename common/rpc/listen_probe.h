#pragma once

#include "common/rpc/address.h"

#include <absl/status/status.h>

namespace crossmesh {

// Makes way for a Unix socket: removes a socket file that no server listens on. FailedPrecondition:
// a server does, or the file is no socket. (gRPC itself would take the file from a live server.)
absl::Status RemoveStaleSocket(const RpcAddress& address);

// Why the address cannot be listened on, after gRPC has failed to without a reason:
// FailedPrecondition with the system's message.
absl::Status ExplainListenFailure(const RpcAddress& address);

}  // namespace crossmesh
