#pragma once

#include <optional>
#include <string>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Of grpc.health.v1 at a controller: SERVING while it leads.
inline constexpr absl::string_view kLeaderService = "leader";

// What a controller that does not lead answers: Unavailable, with where the one that leads is
// reached, if that is known, in its google.rpc.ErrorInfo (reason NOT_LEADER, metadata "leader").
absl::Status NotLeaderError(const std::optional<std::string>& leader);

bool IsNotLeader(const absl::Status& status);
// The address that such an error names, which nobody has checked; nothing of others.
std::optional<std::string> LeaderNamedBy(const absl::Status& status);

}  // namespace crossmesh
