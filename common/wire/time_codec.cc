#include "common/wire/time_codec.h"

#include <cstdint>
#include <string>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int64_t kSecondsMax = 315'576'000'000;
constexpr int64_t kUnixSecondsMin = -62'135'596'800;  // 0001-01-01T00:00:00Z
constexpr int64_t kUnixSecondsMax = 253'402'300'799;  // 9999-12-31T23:59:59Z
constexpr int32_t kNanosMax = 999'999'999;

}  // namespace

google::protobuf::Duration ToProto(absl::Duration duration) {
  google::protobuf::Duration proto;
  absl::Duration rest;
  // Truncates towards zero, so that both parts have one sign, as the message wants it.
  proto.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &rest));
  proto.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  return proto;
}

absl::StatusOr<absl::Duration> FromProto(const google::protobuf::Duration& proto) {
  const bool in_range = proto.seconds() >= -kSecondsMax && proto.seconds() <= kSecondsMax &&
                        proto.nanos() >= -kNanosMax && proto.nanos() <= kNanosMax;
  const bool one_sign =
      (proto.seconds() >= 0 || proto.nanos() <= 0) && (proto.seconds() <= 0 || proto.nanos() >= 0);
  if (in_range && one_sign) {
    return absl::Seconds(proto.seconds()) + absl::Nanoseconds(proto.nanos());
  }
  return absl::InvalidArgumentError(absl::StrCat("not a duration: ", proto.seconds(),
                                                 " seconds and ", proto.nanos(), " nanoseconds"));
}

google::protobuf::Timestamp ToProto(absl::Time time) {
  google::protobuf::Timestamp proto;
  const int64_t seconds = absl::ToUnixSeconds(time);
  proto.set_seconds(seconds);
  proto.set_nanos(
      static_cast<int32_t>(absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
  return proto;
}

absl::StatusOr<absl::Time> FromProto(const google::protobuf::Timestamp& proto) {
  if (proto.seconds() >= kUnixSecondsMin && proto.seconds() <= kUnixSecondsMax &&
      proto.nanos() >= 0 && proto.nanos() <= kNanosMax) {
    return absl::FromUnixSeconds(proto.seconds()) + absl::Nanoseconds(proto.nanos());
  }
  return absl::InvalidArgumentError(absl::StrCat("not a time: ", proto.seconds(), " seconds and ",
                                                 proto.nanos(), " nanoseconds from 1970"));
}

absl::StatusOr<absl::Duration> DurationIn(const google::protobuf::Duration& proto,
                                          const DurationRange& range, absl::string_view field) {
  const absl::StatusOr<absl::Duration> duration = FromProto(proto);
  if (duration.ok() && *duration >= range.least && *duration <= range.most) return *duration;
  return absl::InvalidArgumentError(absl::StrCat(
      field, ": expected ", absl::FormatDuration(range.least), " to ",
      absl::FormatDuration(range.most), ", found ",
      duration.ok() ? absl::FormatDuration(*duration) : std::string(duration.status().message())));
}

}  // namespace crossmesh
