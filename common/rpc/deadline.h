#pragma once

#include <absl/time/time.h>
#include <grpcpp/client_context.h>

namespace crossmesh {

inline constexpr absl::Duration kRpcDeadlineDefault = absl::Seconds(30);
inline constexpr absl::Duration kRpcDeadlineMax = absl::Minutes(10);

// Every unary call gets a deadline, by this: `timeout` from now on the monotonic clock, within
// (0, kRpcDeadlineMax].
void SetDeadline(grpc::ClientContext& context, absl::Duration timeout = kRpcDeadlineDefault);

// As gRPC's settings have durations.
inline int Milliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

}  // namespace crossmesh
