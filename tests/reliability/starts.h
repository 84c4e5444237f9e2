#pragma once

#include "common/base/mutex.h"

#include <map>
#include <string>

namespace crossmesh {

// How often each worker was started: what it held before its last start is lost. Thread-safe.
class Starts {
 public:
  // Before it is killed, and once it runs again.
  void Count(const std::string& worker) {
    const MutexLock lock(mutex_);
    ++of_worker_[worker];
  }
  int Of(const std::string& worker) const {
    const MutexLock lock(mutex_);
    const auto found = of_worker_.find(worker);
    return found == of_worker_.end() ? 0 : found->second;
  }

 private:
  mutable Mutex mutex_;
  std::map<std::string, int> of_worker_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace crossmesh
