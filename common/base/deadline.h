#pragma once

#include "common/base/clock.h"

#include <algorithm>

#include <absl/time/time.h>

namespace crossmesh {

// A moment that is some time from now, by a clock that does not jump: for those who wait, look, and
// wait for the rest of it.
class Deadline {
 public:
  explicit Deadline(absl::Duration timeout) : end_(RealClock().Monotonic() + timeout) {}

  // Until then; zero when it has passed.
  absl::Duration left() const {
    return std::max(end_ - RealClock().Monotonic(), absl::ZeroDuration());
  }
  bool passed() const { return left() == absl::ZeroDuration(); }

 private:
  absl::Duration end_;
};

}  // namespace crossmesh
