#pragma once

#include <memory>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>
#include <grpcpp/channel.h>

namespace crossmesh {

// Asks grpc.health.v1 at the other end whether `service` serves; "" is the server as a whole.
// NotFound: the server knows no service of that name; those of the connection; DeadlineExceeded.
absl::StatusOr<bool> IsServing(const std::shared_ptr<grpc::Channel>& channel,
                               absl::string_view service, absl::Duration timeout);

}  // namespace crossmesh
