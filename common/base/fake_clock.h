#pragma once

#include "common/base/clock.h"
#include "common/base/mutex.h"

#include <absl/time/time.h>

namespace crossmesh {

// A clock that moves only when told to. Wall time starts at `start`, monotonic time at zero.
// Thread-safe.
class FakeClock final : public Clock {
 public:
  explicit FakeClock(absl::Time start = absl::FromUnixSeconds(1'700'000'000)) : start_(start) {}

  absl::Time Now() const override { return start_ + Monotonic(); }

  absl::Duration Monotonic() const override {
    MutexLock lock(mutex_);
    return elapsed_;
  }

  // Moves both times forward; `step` must not be negative.
  void Advance(absl::Duration step) {
    MutexLock lock(mutex_);
    elapsed_ += step;
  }

 private:
  const absl::Time start_;

  mutable Mutex mutex_;
  absl::Duration elapsed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace crossmesh
