#pragma once

#include <absl/status/status.h>
#include <grpcpp/support/status.h>

namespace crossmesh {

// Code and message survive both ways, and so do the details of ErrorDetails. Messages are cut where
// they would take more than 3 KiB on their way, percent-encoded, at a character's boundary: with
// details a call's trailers stay below 8 KiB, beyond which clients drop them.
grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace crossmesh
