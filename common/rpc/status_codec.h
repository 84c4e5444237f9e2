#pragma once

#include <absl/status/status.h>
#include <grpcpp/support/status.h>

namespace crossmesh {

// Code and message survive both ways, and so do the details of ErrorDetails. Messages are cut at 3
// KiB, at a character's boundary, so that with details a call's trailers stay below 8 KiB when
// percent encoding leaves them alone.
grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace crossmesh
