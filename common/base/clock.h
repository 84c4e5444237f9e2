#pragma once

#include <absl/time/clock.h>
#include <absl/time/time.h>

namespace crossmesh {

// The source of time, passed in so that tests can hold it still. Implementations are thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;

  // Wall time. It can jump, back as well; for people and records only.
  virtual absl::Time Now() const = 0;

  // Time since a start that is fixed for this clock; never goes back. For intervals and deadlines.
  virtual absl::Duration Monotonic() const = 0;
};

class RealClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
  absl::Duration Monotonic() const override;
};

}  // namespace crossmesh
