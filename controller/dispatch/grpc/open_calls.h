#pragma once

#include "common/base/mutex.h"

#include <memory>
#include <utility>

#include <absl/container/flat_hash_set.h>

namespace crossmesh {

// The streaming calls whose listeners have not heard the end. Call has Cancel(). Thread-safe.
template <typename Call>
class OpenCalls {
 public:
  // False: stopped.
  bool Enter(std::shared_ptr<Call> call) {
    const MutexLock lock(mutex_);
    if (stopped_) return false;
    calls_.insert(std::move(call));
    return true;
  }
  void Leave(const std::shared_ptr<Call>& call) {
    const MutexLock lock(mutex_);
    calls_.erase(call);
    if (calls_.empty()) empty_.SignalAll();
  }
  // Breaks all off, and returns when all have left. Repeatable. None enters from now on. Blocks.
  void Stop() {
    absl::flat_hash_set<std::shared_ptr<Call>> calls;
    {
      const MutexLock lock(mutex_);
      stopped_ = true;
      calls = calls_;
    }
    for (const std::shared_ptr<Call>& call : calls) call->Cancel();
    const MutexLock lock(mutex_);
    while (!calls_.empty()) empty_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar empty_;
  absl::flat_hash_set<std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace crossmesh
