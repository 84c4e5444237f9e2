#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>
#include <google/protobuf/duration.pb.h>
#include <google/protobuf/timestamp.pb.h>

namespace crossmesh {

google::protobuf::Duration ToProto(absl::Duration duration);
// InvalidArgument unless the message is in its own range: +-10,000 years, nanoseconds below 10^9
// and of the same sign.
absl::StatusOr<absl::Duration> FromProto(const google::protobuf::Duration& proto);

google::protobuf::Timestamp ToProto(absl::Time time);
// InvalidArgument unless the message is in its own range: the years 1 to 9999, nanoseconds from 0
// to below 10^9.
absl::StatusOr<absl::Time> FromProto(const google::protobuf::Timestamp& proto);

struct DurationRange {
  absl::Duration least;
  absl::Duration most;
};
// InvalidArgument names `field` and the range when the duration is not in it, or is none.
absl::StatusOr<absl::Duration> DurationIn(const google::protobuf::Duration& proto,
                                          const DurationRange& range, absl::string_view field);

}  // namespace crossmesh
