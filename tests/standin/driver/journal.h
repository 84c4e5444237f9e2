#pragma once

#include "common/base/mutex.h"
#include "tests/standin/control/stand_in_control.h"

#include <cstdint>
#include <deque>
#include <string>

namespace crossmesh {

// What the process did and what it did wrong. Thread-safe.
class Journal {
 public:
  // Lives as long as the process, since the calls of a C library have no object.
  static Journal& OfProcess();

  // Sets its end and its thread.
  void Add(const StandInCall& call);
  int64_t Read(int64_t first, StandInCall* calls, int64_t max);

  // Also writes to standard error and appends to the file CROSSMESH_STANDIN_REPORT.
  void Violate(std::string text);
  int64_t violation_count();
  const char* violation(int64_t index);  // null beyond the last

 private:
  Journal();

  const std::string report_path_;

  Mutex mutex_;
  std::deque<StandInCall> calls_ ABSL_GUARDED_BY(mutex_);
  int64_t first_call_ ABSL_GUARDED_BY(mutex_) = 0;  // number of calls that were forgotten
  std::deque<std::string> violations_ ABSL_GUARDED_BY(mutex_);  // references stay valid
};

// Nanoseconds of CLOCK_MONOTONIC.
int64_t MonotonicNs();

}  // namespace crossmesh
