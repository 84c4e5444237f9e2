#pragma once

#include "common/base/clock.h"
#include "common/base/mutex.h"

#include <absl/time/time.h>

namespace crossmesh {

// Set once; waited for by another thread.
class Latch {
 public:
  void Set() {
    MutexLock lock(mutex_);
    set_ = true;
    changed_.SignalAll();
  }
  // Whether it was set within the time.
  bool WaitFor(const Clock& clock, absl::Duration timeout) {
    const absl::Duration end = clock.Monotonic() + timeout;
    MutexLock lock(mutex_);
    while (!set_) {
      const absl::Duration left = end - clock.Monotonic();
      if (left <= absl::ZeroDuration()) return false;
      changed_.WaitFor(mutex_, left);
    }
    return true;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool set_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace crossmesh
