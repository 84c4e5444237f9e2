#pragma once

#include <absl/status/status.h>
#include <google/protobuf/message.h>

namespace crossmesh {

// ResourceExhausted, naming the message and both sizes, when it is larger than an ordinary request
// may be. Cost: linear in the message.
absl::Status CheckRequestBytes(const google::protobuf::Message& request);

}  // namespace crossmesh
