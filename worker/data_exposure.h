#pragma once

#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

struct DataTransportOptions;
struct IpEndpoint;

// Tensors travel unencrypted, and their receivers ask nobody for a name. So a worker listens for
// them on loopback alone, unless its operator says which network may be trusted, or that all may.

// Which of the options allows tensors to be received at `address`, for the log: "--insecure" or a
// trusted network. Empty for a loopback address, which needs none. InvalidArgument, with the
// interface, its address and what is trusted: none of them; or a network is malformed.
absl::StatusOr<std::string> FindPermission(const std::string& interface, const IpEndpoint& address,
                                           const DataTransportOptions& options);

// FindPermission for all interfaces; warns of each that is not loopback. A device of UCX without an
// IP address is in no network, so that only --insecure allows it. What FindInterface says.
absl::Status CheckDataExposure(const DataTransportOptions& options);

}  // namespace crossmesh
