#pragma once

#include "common/base/mutex.h"
#include "tests/standin/control/stand_in_control.h"

#include <atomic>
#include <map>
#include <string>

#include <absl/strings/string_view.h>

namespace crossmesh {

// Host functions by the name of the kernel that they stand in for. Thread-safe.
class Kernels {
 public:
  void Add(const StandInKernel& kernel) {
    MutexLock lock(mutex_);
    kernels_.insert_or_assign(kernel.name, kernel);
  }
  // Null without one; else stays.
  const StandInKernel* Find(absl::string_view name) {
    MutexLock lock(mutex_);
    const auto found = kernels_.find(name);
    return found == kernels_.end() ? nullptr : &found->second;
  }

 private:
  Mutex mutex_;
  std::map<std::string, StandInKernel, std::less<>> kernels_ ABSL_GUARDED_BY(mutex_);
};

// A module, of which only the use counts. Thread-safe.
struct Module {
  std::atomic<int> queued_launches = 0;
};

struct Function {
  Module& module;
  const StandInKernel& kernel;
};

}  // namespace crossmesh
