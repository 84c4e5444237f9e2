#include "client/cli/duration_flag.h"

#include "common/wire/time_codec.h"

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>

namespace crossmesh {

absl::Status ReadDuration(absl::string_view flag, const std::string& text,
                          google::protobuf::Duration& proto) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration) || duration <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, ": expected a duration like 1.5s, found \"", text, "\""));
  }
  proto = ToProto(duration);
  return absl::OkStatus();
}

}  // namespace crossmesh
