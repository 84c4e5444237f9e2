#pragma once

#include <absl/status/statusor.h>
#include <absl/time/time.h>
#include <google/protobuf/duration.pb.h>
#include <google/protobuf/timestamp.pb.h>

namespace crossmesh {

google::protobuf::Duration ToProto(absl::Duration duration);
// InvalidArgument unless the message is in its own range: +-10,000 years, nanoseconds below 10^9
// and of the same sign.
absl::StatusOr<absl::Duration> FromProto(const google::protobuf::Duration& proto);
google::protobuf::Timestamp ToProto(absl::Time time);

}  // namespace crossmesh
