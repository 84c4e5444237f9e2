#include "planner/pipeline/schedules/counts.h"

#include <string>

#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::Status CheckCount(absl::string_view schedule, const NeededCount& needed) {
  if (needed.count >= needed.least && needed.count % needed.unit == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      schedule, ": expected at least ", needed.least, " ", needed.name,
      needed.unit > 1 ? absl::StrCat(", a multiple of ", needed.unit) : "",
      needed.reason.empty() ? "" : ", since ", needed.reason, "; found ", needed.count));
}

}  // namespace crossmesh
