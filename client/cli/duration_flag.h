#pragma once

#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>
#include <google/protobuf/duration.pb.h>

namespace crossmesh {

// What `text` says, as Go writes it: "1.5s", "2m". InvalidArgument names the flag, given without
// its dashes, unless it is a duration above 0.
absl::StatusOr<absl::Duration> ParseDurationFlag(absl::string_view flag, const std::string& text);
absl::Status ReadDuration(absl::string_view flag, const std::string& text,
                          google::protobuf::Duration& proto);

}  // namespace crossmesh
