#pragma once

#include <cstdint>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// A number that a schedule needs: at least `least`, and a multiple of `unit`.
struct NeededCount {
  absl::string_view name;  // "ranks"
  int64_t count = 0;
  int64_t least = 1;
  int64_t unit = 1;
  absl::string_view reason;  // of more than 1: "each direction takes half of them"
};

// InvalidArgument, naming the schedule and the count, when it is another.
absl::Status CheckCount(absl::string_view schedule, const NeededCount& needed);

}  // namespace crossmesh
