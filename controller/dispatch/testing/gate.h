#pragma once

#include "common/base/mutex.h"

namespace crossmesh {

// What threads wait for until it opens. Thread-safe.
class Gate {
 public:
  void Open() {
    const MutexLock lock(mutex_);
    open_ = true;
    opened_.SignalAll();
  }
  void Wait() {
    const MutexLock lock(mutex_);
    while (!open_) opened_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar opened_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace crossmesh
