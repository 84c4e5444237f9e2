#pragma once

#include "common/base/mutex.h"

#include <absl/time/time.h>

namespace crossmesh {

// Waits between two attempts of a blocking call.
inline void Pause(absl::Duration duration) {
  Mutex mutex;
  CondVar never;
  MutexLock lock(mutex);
  while (!never.WaitFor(mutex, duration)) {
  }
}

}  // namespace crossmesh
