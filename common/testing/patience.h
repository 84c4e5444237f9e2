#pragma once

#include "common/base/check.h"
#include "common/base/clock.h"

#include <source_location>

#include <absl/time/time.h>

namespace crossmesh {

// A test's with what it waits for, from now on. Ends the process and names the line that waited:
// long before the runner of tests would, which does not say what was missing. Allocates nothing.
class Patience {
 public:
  explicit Patience(std::source_location where = std::source_location::current(),
                    absl::Duration limit = absl::Seconds(30))
      : where_(where), limit_(limit), end_(clock_.Monotonic() + limit) {}

  void Check() const {
    CHECK(clock_.Monotonic() < end_)
        << where_.file_name() << ":" << where_.line() << " waited " << limit_ << " in vain";
  }

 private:
  const RealClock clock_{};
  const std::source_location where_;
  const absl::Duration limit_;
  const absl::Duration end_;  // on the monotonic clock
};

}  // namespace crossmesh
