#pragma once

#include "common/base/unique_fd.h"
#include "worker/transport/socket/socket_address.h"

#include <absl/status/statusor.h>

namespace crossmesh {

// Opens for reading what a process of this host has open. Unavailable: the system does not let this
// process do that, or there is nothing.
absl::StatusOr<UniqueFd> OpenFileOf(const ProcessFile& file);

// For a transport that is being made. Internal: the system has no random bytes.
absl::StatusOr<TransportNonce> MakeNonce();

// A file with the nonce of a transport. ResourceExhausted: no file descriptors left.
absl::StatusOr<UniqueFd> MakeNonceFile(const TransportNonce& nonce);

// OK when `nonce` stands in the file: then the process that says so is of this host, has its number
// in the same pid namespace, and lets this one open its files. Else Unavailable.
absl::Status CheckNonceFile(const ProcessFile& file, const TransportNonce& nonce);

}  // namespace crossmesh
