#pragma once

#include "common/base/mutex.h"

#include <string>
#include <vector>

#include <absl/strings/string_view.h>

namespace crossmesh {

// What a run has found to be wrong. Thread-safe.
class Violations {
 public:
  void Add(std::string what) {
    const MutexLock lock(mutex_);
    found_.push_back(std::move(what));
  }
  std::vector<std::string> found() const {
    const MutexLock lock(mutex_);
    return found_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::string> found_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace crossmesh
