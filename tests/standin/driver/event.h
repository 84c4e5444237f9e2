#pragma once

#include "common/base/mutex.h"

#include <cstdint>

namespace crossmesh {

// When a stream passed the points at which an event was recorded. Thread-safe.
class Event {
 public:
  Event(int device, bool has_time) : device_(device), has_time_(has_time) {}

  // Notes a record, and gives its number, counted from 1.
  int64_t Record();
  int64_t recorded();  // the last record's number, 0 before the first
  void Complete(int64_t record);
  bool completed(int64_t record);
  void Wait(int64_t record);
  int64_t time_ns();  // of the last completed record

  int device() const { return device_; }
  bool has_time() const { return has_time_; }

 private:
  const int device_;
  const bool has_time_;

  Mutex mutex_;
  CondVar changed_;
  int64_t recorded_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t completed_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t time_ns_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace crossmesh
