#pragma once

#include "common/base/mutex.h"

#include <cstdint>
#include <map>
#include <string>

#include <absl/strings/string_view.h>

namespace crossmesh {

// Named faults with a number each: a count, or the event at which the fault happens. Thread-safe.
class Faults {
 public:
  // The process's, at first from CROSSMESH_STANDIN_FAULTS and the file that
  // CROSSMESH_STANDIN_FAULTS_FILE names. Lives as long as the process, since the calls of a C
  // library have no object.
  static Faults& OfProcess();

  // "stall_at=3,in_progress_polls=5". Returns whether it could be read; else nothing changes.
  bool Set(absl::string_view text);
  int64_t Value(absl::string_view name);
  bool Due(absl::string_view name);

 private:
  struct Fault {
    int64_t value = 0;
    int64_t events = 0;
  };

  Mutex mutex_;
  std::map<std::string, Fault, std::less<>> faults_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace crossmesh
