#include "client/cli/duration_flag.h"

#include "common/base/status_macros.h"
#include "common/wire/time_codec.h"

#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::StatusOr<absl::Duration> ParseDurationFlag(absl::string_view flag, const std::string& text) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration) || duration <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, ": expected a duration like 1.5s, found \"", text, "\""));
  }
  return duration;
}

absl::Status ReadDuration(absl::string_view flag, const std::string& text,
                          google::protobuf::Duration& proto) {
  ASSIGN_OR_RETURN(const absl::Duration duration, ParseDurationFlag(flag, text));
  proto = ToProto(duration);
  return absl::OkStatus();
}

}  // namespace crossmesh
