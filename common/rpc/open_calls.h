#pragma once

#include "common/base/mutex.h"

#include <functional>
#include <utility>

#include <absl/container/flat_hash_map.h>

namespace crossmesh {

// The calls whose ends have not been told. Thread-safe.
class OpenCalls {
 public:
  // `call` names it; `cancel`, which must not block, breaks it off, and may be called until Leave
  // has returned. False: stopped.
  bool Enter(const void* call, std::function<void()> cancel) {
    const MutexLock lock(mutex_);
    if (stopped_) return false;
    calls_.emplace(call, std::move(cancel));
    return true;
  }
  // The last thing that a call does.
  void Leave(const void* call) {
    std::function<void()> cancel;  // goes away without the lock, perhaps with the call
    const MutexLock lock(mutex_);
    const auto found = calls_.find(call);
    cancel = std::move(found->second);
    calls_.erase(found);
    if (calls_.empty()) empty_.SignalAll();
  }
  // Breaks all off, and returns when all have left. Repeatable. None enters from now on. Blocks.
  void Stop() {
    absl::flat_hash_map<const void*, std::function<void()>> calls;
    {
      const MutexLock lock(mutex_);
      stopped_ = true;
      calls = calls_;
    }
    for (const auto& [call, cancel] : calls) cancel();
    const MutexLock lock(mutex_);
    while (!calls_.empty()) empty_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar empty_;
  absl::flat_hash_map<const void*, std::function<void()>> calls_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace crossmesh
