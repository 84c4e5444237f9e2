#pragma once

#include <string>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>
#include <google/protobuf/duration.pb.h>

namespace crossmesh {

// What `text` says, as Go writes it: "1.5s", "2m". InvalidArgument names the flag, given without
// its dashes, unless it is a duration above 0.
absl::Status ReadDuration(absl::string_view flag, const std::string& text,
                          google::protobuf::Duration& proto);

}  // namespace crossmesh
