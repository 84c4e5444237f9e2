#pragma once

#include <absl/strings/string_view.h>

namespace crossmesh {

struct TimeUnit {
  absl::string_view name;  // "ms"
  double seconds = 1;
};

// The largest in which the time is at least one.
TimeUnit UnitFor(double seconds);

// 1, 2 or 5 times a power of ten, so that at most ten steps make up the whole.
double StepFor(double whole);

}  // namespace crossmesh
